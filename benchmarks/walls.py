"""Every wall that is ready, by the same calls, in one run and one table."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from atoll import Sandbox, registry
from atoll.errors import AtollError
from atoll.io import BlockingIO, drive
from atoll.types import Capability

from .measure import Figure, median, milliseconds, say
from .wallpeers import peers

ROUNDS, WARM, LIVE, CYCLES = 7, 50, 8, 200
_TEN = os.urandom(1 << 20) * 10
COLUMNS = (
    "create -> command",
    "create -> cell",
    "warm cell",
    'run("true")',
    "10 MB in",
    "10 MB out",
    "destroy",
    "memory",
    "left after",
)


class Seen(dict[str, float]):
    """Of one wall: milliseconds, MB, and things left."""


def ready_walls() -> list[str]:
    """Those that can be built here, the weakest included."""
    found = []
    for name in registry.names():
        try:
            layers = drive(registry.load(name, BlockingIO()).health())
        except AtollError as error:
            say(f"  {name} is left out: {error}")
            continue
        lacking = [layer for layer in layers if layer.required and not layer.ready]
        if lacking:
            say(f"  {name} is left out: {lacking[0].name}: {lacking[0].detail}")
        else:
            found.append(name)
    return found


def _first(name: str, use: Callable[[Sandbox], object], destroys: list[float]) -> float:
    start = time.perf_counter()
    sandbox = Sandbox.create(name)
    use(sandbox)
    took = (time.perf_counter() - start) * 1e3
    destroys.append(milliseconds(sandbox.destroy))
    return took


def _many(action: Callable[[], object]) -> float:
    action()
    return median([milliseconds(action) for _ in range(WARM)])


def _available() -> int:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1])


def _memory(name: str) -> float:
    """What each of some idle sandboxes takes of this machine, in MB: processes, engine and kernel together."""
    Sandbox.create(name).destroy()
    time.sleep(1)
    before = _available()
    made = [Sandbox.create(name) for _ in range(LIVE)]
    time.sleep(1)
    taken = (before - _available()) / 1024 / LIVE
    for sandbox in made:
        sandbox.destroy()
    return taken


def _left(name: str, cycles: int) -> float:
    """Processes, mounts, control groups and descriptors that are there after some cycles and were not before."""
    for _ in range(3):
        Sandbox.create(name).destroy()
    before = _count()
    for _ in range(cycles):
        Sandbox.create(name).destroy()
    deadline = time.monotonic() + 30
    while (left := sum(max(0, now - then) for now, then in zip(_count(), before, strict=True))) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.5)
    return float(left)


def _count() -> tuple[int, ...]:
    groups = sum(len(names) for top in Path("/sys/fs/cgroup").rglob("atoll") for _, names, _ in os.walk(top))
    files = sum(len(names) + len(more) for _, names, more in os.walk(os.environ["ATOLL_HOME"]))
    return (
        sum(name.isdigit() for name in os.listdir("/proc")),
        len(Path("/proc/self/mountinfo").read_text().splitlines()),
        groups,
        len(os.listdir("/proc/self/fd")),
        files,
    )


def _look(name: str, cycles: int) -> Seen:
    can = registry.load(name, BlockingIO()).capabilities
    seen, destroys = Seen(), []
    commands, code = Capability.COMMANDS in can, Capability.CODE in can
    Sandbox.create(name).destroy()  # what is made once for all is made now
    if commands:
        seen["create -> command"] = median([_first(name, lambda s: s.run("true"), destroys) for _ in range(ROUNDS)])
    if code:
        seen["create -> cell"] = median([_first(name, lambda s: s.run_code("1"), destroys) for _ in range(ROUNDS)])
    seen["destroy"] = median(destroys)
    with Sandbox.create(name) as sandbox:
        if code:
            seen["warm cell"] = _many(lambda: sandbox.run_code("1"))
        if commands:
            seen['run("true")'] = _many(lambda: sandbox.run("true"))
        seen["10 MB in"] = median([milliseconds(lambda: sandbox.files.write("ten", _TEN)) for _ in range(3)])
        seen["10 MB out"] = median([milliseconds(lambda: sandbox.files.read_bytes("ten")) for _ in range(3)])
    seen["memory"] = _memory(name)
    seen["left after"] = _left(name, cycles)
    return seen


def matrix(seen: dict[str, Seen], cycles: int) -> str:
    units = {"memory": "MB", "left after": f"{cycles} cycles"}
    lines = ["| wall | " + " | ".join(f"{column} ({units.get(column, 'ms')})" for column in COLUMNS) + " |"]
    lines.append("|---" * (len(COLUMNS) + 1) + "|")
    for name, figures in seen.items():
        cells = (f"{figures[column]:.2f}" if column in figures else "–" for column in COLUMNS)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measure(cycles: int = int(os.environ.get("ATOLL_BENCH_CYCLES", CYCLES))) -> list[Figure]:
    say("walls: each that is ready, by the same calls")
    seen: dict[str, Seen] = {}
    figures: list[Figure] = []
    with peers() as beside:
        for name in ready_walls():
            say(f"  {name}")
            seen[name] = _look(name, cycles)
            figures += beside(name, seen[name])
            figures.append(
                Figure(f"{name}: left after {cycles} cycles", seen[name]["left after"], "things", "", None, 0)
            )
    sys.stdout.write(matrix(seen, cycles) + "\n\n")
    return figures
