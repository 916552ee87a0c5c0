"""Forks of a sandbox with 500 MB of live state, beside a bare os.fork of as much memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from atoll import Sandbox

from .measure import Figure, median, say

STATE = 500
MANY = 100
ROUNDS = 7
SPARE = 5.0
ALLOCATE = f"""
state = bytearray({STATE} << 20)
for at in range(0, len(state), 4096):
    state[at] = 1
"""
BARE = (
    ALLOCATE
    + """
import os, time
times = []
for _ in range(9):
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(0)
    times.append(time.perf_counter() - start)
    os.waitpid(child, 0)
print(sorted(times)[4] * 1e3)
"""
)
WHO = "import os; [os.stat('/proc/self/ns/' + name).st_ino for name in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts')]"


def _bare() -> float:
    return float(subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True).stdout)


def _proportional(pids: list[int]) -> float:
    """Megabytes that processes of the host take together, what they share divided among them."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total / 1024


def _contexts(sandboxes: list[Sandbox]) -> list[int]:
    """The host's numbers of the processes that hold the state: the largest of each sandbox."""
    found = []
    for sandbox in sandboxes:
        directory = f"/sys/fs/cgroup/pids/atoll/{sandbox.id}"
        with open(f"{directory}/cgroup.procs", encoding="ascii") as file:
            pids = [int(line) for line in file]
        found.append(max(pids, key=_resident))
    return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1])
    except OSError:
        return 0


def measure() -> list[Figure]:
    say(f"forks: {STATE} MB of live state")
    figures = []
    parent = Sandbox.create(resources={"memory": "4G"})
    try:
        parent.run_code(ALLOCATE, timeout=120)
        bare, one = [], []
        for _ in range(ROUNDS):
            bare.append(_bare())
            start = time.perf_counter()
            twin = parent.fork()
            one.append((time.perf_counter() - start) * 1e3)
            twin.destroy()
            time.sleep(0.3)
        floor = 2 * median(bare) + SPARE
        live = parent.info.live
        what = "fork, live" if live else "fork, from a checkpoint"
        figures.append(Figure(what, median(one), "ms", "2 x a bare os.fork + 5 ms", floor, 1.0))
        start = time.perf_counter()
        twins = parent.fork(MANY)
        seen = (time.perf_counter() - start) * 1e3
        figures.append(Figure(f"{MANY} forks at once", seen, "ms", "", None, 1000.0))
        try:
            if os.geteuid() == 0:
                total = _proportional(_contexts(twins))
                figures.append(Figure("memory (PSS) of their contexts", total, "MB", "the state", float(STATE), 1.3))
            spaces = {twin.run_code(WHO).text for twin in twins}
            assert len(spaces) == MANY, "namespaces are shared"
            parent.destroy()
            assert {twin.run_code("len(state)").text for twin in twins} == {str(STATE << 20)}
        finally:
            for twin in twins:
                twin.destroy()
    finally:
        parent.destroy()
    return figures
