"""Forks of a sandbox with 500 MB of arrays, beside sending as many bytes once through a pipe."""

from __future__ import annotations

import os
import time

from atoll import Sandbox

from .measure import Figure, median, say

STATE = 500
MANY = 20
ROUNDS = 5
_BLOCK = 1 << 20
ALLOCATE = f"import numpy; state = numpy.random.default_rng(1).integers(0, 255, {STATE} << 20, dtype=numpy.uint8)"
SUM = "int(state[::4096].sum())"


def _through_a_pipe() -> float:
    """Milliseconds for one process to write the state, and another to read it into memory of its own."""
    data = memoryview(os.urandom(_BLOCK) * STATE)
    reader, writer = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reader)
        at = 0
        while at < len(data):
            at += os.write(writer, data[at : at + _BLOCK])
        os._exit(0)
    os.close(writer)
    kept = bytearray(len(data))
    view, at = memoryview(kept), 0
    while size := os.readv(reader, [view[at : at + _BLOCK]]):
        at += size
    seen = (time.perf_counter() - start) * 1e3
    os.close(reader)
    os.waitpid(child, 0)
    return seen


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


def _fork(parent: Sandbox, number: int, expected: str | None) -> tuple[float, float, list[Sandbox]]:
    """Milliseconds until `number` twins are there, and until each has read its state."""
    start = time.perf_counter()
    made = parent.fork(number)
    twins = [made] if isinstance(made, Sandbox) else list(made)
    there = (time.perf_counter() - start) * 1e3
    assert {twin.run_code(SUM, timeout=120).text for twin in twins} == {expected}, "the state is another"
    return there, (time.perf_counter() - start) * 1e3, twins


def measure() -> list[Figure]:
    say(f"forks: {STATE} MB of arrays")
    parent = Sandbox.create(resources={"memory": "4G", "disk": "4G"})
    try:
        parent.run_code(ALLOCATE, timeout=120)
        expected = parent.run_code(SUM).text
        pipe: list[float] = []
        there: list[float] = []
        one: list[float] = []
        for number in range(ROUNDS):
            # A state that has not changed is not saved again: each round pays for the whole.
            expected = parent.run_code(f"state[0] = {number}\n{SUM}").text
            pipe.append(_through_a_pipe())
            made, used, twins = _fork(parent, 1, expected)
            there.append(made)
            one.append(used)
            for twin in twins:
                twin.destroy()
        floor = "500 MB written and read once through a pipe"
        figures = [
            Figure("fork, until the twin is there", median(there), "ms", floor, median(pipe), 2.0),
            Figure("fork, until the twin has read its state", median(one), "ms", floor, median(pipe), 2.0),
        ]
        expected = parent.run_code(f"state[0] = 77\n{SUM}").text
        _, used, twins = _fork(parent, MANY, expected)
        try:
            figures.append(
                Figure(f"{MANY} forks, until all have read it", used, "ms", "one such fork", median(one), 3.0)
            )
            if os.geteuid() == 0:
                total = _proportional(_contexts(twins))
                figures.append(Figure("memory (PSS) of their contexts", total, "MB", "", None, None))
        finally:
            for twin in twins:
                twin.destroy()
    finally:
        parent.destroy()
    return figures
