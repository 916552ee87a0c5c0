"""What an idle sandbox takes: the PSS of every process of it, keeper included, at 10 and at 1,000 live."""

from __future__ import annotations

import time
from pathlib import Path

from atoll import Sandbox
from atoll.store import shared

from .measure import Figure, milliseconds, percentile, say

FEW, MANY = 10, 1000
# By then a guest has let go of what it had prepared for a first cell.
SETTLED = 3.0


def tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def keeper(sandbox: Sandbox) -> int:
    row = shared().get(sandbox.id)
    if row is None:
        raise RuntimeError("the registry does not know a live sandbox")
    return int(row.handle.data["pid"])


def _average(sandboxes: list[Sandbox]) -> float:
    return sum(pss(pid) for sandbox in sandboxes for pid in tree(keeper(sandbox))) / len(sandboxes) / 1024


def _measure(count: int) -> tuple[float, float, list[float]]:
    sandboxes = []
    try:
        for number in range(count):
            sandboxes.append(Sandbox.create())
            if number % 100 == 99:
                say(f"  {number + 1} live")
        time.sleep(SETTLED)
        idle = _average(sandboxes)
        cells = [milliseconds(lambda each=each: each.run_code("1 + 1")) for each in sandboxes]  # type: ignore[misc]
        return idle, _average(sandboxes), cells
    finally:
        for sandbox in sandboxes:
            sandbox.destroy()


def measure() -> list[Figure]:
    say(f"memory: {FEW}, then {MANY} live")
    few, few_used, _ = _measure(FEW)
    many, many_used, cells = _measure(MANY)
    return [
        Figure(f"PSS of an idle sandbox, {FEW} live", few, "MB", "", None, 5.0),
        Figure(f"PSS of an idle sandbox, {MANY} live", many, "MB", "", None, 5.0),
        Figure(f"the same after a cell, {FEW} live", few_used, "MB", "", None, None),
        Figure(f"the same after a cell, {MANY} live", many_used, "MB", "", None, None),
        Figure(f"a cell in each of {MANY} live, p99", percentile(cells, 0.99), "ms", "", None, 50.0),
    ]
