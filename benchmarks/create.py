"""Create to first result: cells, commands, a source tree; from the parked lot and with the lot empty."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from atoll import Sandbox

from .measure import BWRAP, Figure, interleaved, median, milliseconds, run_quietly, say

# The wall must be finished when the cell runs: it looks for itself.
CELL = """
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
seen = (int(status["CapEff"], 16), int(status["Seccomp"]), int(status["NoNewPrivs"]))
assert seen == (0, 2, 1), seen
seen, open("/proc/self/cgroup").read()
"""
FILES = 1000
# More than are ever parked: after so many at once the next has to be made from nothing.
EMPTYING = 8


def _first(use: Callable[[Sandbox], object], source: str | None = None) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        sandbox = Sandbox.create(source=source, preset="full-access")
        use(sandbox)
        seen = (time.perf_counter() - start) * 1e3
        sandbox.destroy()
        return seen

    return once


def _cell(sandbox: Sandbox) -> None:
    execution = sandbox.run_code(CELL)
    if not execution.success:
        raise RuntimeError(execution.error)


def _true(sandbox: Sandbox) -> None:
    sandbox.run("true", check=True)


def _lot_empty() -> float:
    taken = [Sandbox.create() for _ in range(EMPTYING)]
    try:
        return _first(_cell)()
    finally:
        for sandbox in taken:
            sandbox.destroy()


def measure() -> list[Figure]:
    say("create: first results, beside bwrap")
    Sandbox.create().destroy()
    time.sleep(0.5)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(FILES):
            path = Path(directory) / f"d{number % 20}" / f"f{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("x" * 100)
        bwrap, cell, true, source = interleaved(
            25,
            0.08,
            lambda: milliseconds(lambda: run_quietly(BWRAP)),
            _first(_cell),
            _first(_true),
            _first(_true, directory),
        )
    empty = [_lot_empty() for _ in range(8)]
    floor = median(bwrap)
    peer = "bwrap … python3 -c pass"
    return [
        Figure("create -> first Python result", median(cell), "ms", peer, floor, 0.5),
        Figure("the same, nothing parked left", median(empty), "ms", peer, floor, None),
        Figure('create -> run("true")', median(true), "ms", peer, floor, 0.5),
        Figure(f"the same over source= of {FILES} files", median(source), "ms", peer, floor, 0.7),
    ]
