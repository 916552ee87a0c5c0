"""The memory of a sandbox's processes, with what they share divided among them, asked for by a child.

The kernel tells it only when it has a process's memory to itself. Hostile threads can make that take seconds, and
nothing ends the wait of who has asked: not even its own death. A keeper must not be the one who waits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Generator

from . import kernel, usage

# How long it waits at a stretch, and how long all together, in seconds; who was not told of by then counts whole.
_STRETCH, _PATIENCE = 0.005, 5.0

_ending: list[int] = []
"""Children that have told all or were given up."""


def of_each(first: int) -> Generator[None, None, dict[int, int]]:
    """Bytes of a process and of each below it, in steps that wait for hundredths of a second."""
    _bury()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _tell(first, writer)
    os.close(writer)
    said, until = bytearray(), time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < until:
            if select.select([reader], [], [], _STRETCH)[0]:
                part = os.read(reader, 1 << 16)
                if not part:
                    break
                said += part
            yield
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _ending.append(child)
        _bury()
    lines = (line.split() for line in said.split(b"\n")[:-1])
    told = {int(pid): int(size) for pid, size in lines}
    return {pid: told[pid] if pid in told else usage.resident(pid) for pid in {first, *usage.descendants(first), *told}}


def _tell(first: int, writer: int) -> None:
    """A line for each. Does not return."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.close_from(3, (writer,))
        kernel.name_process("atoll-errand")
        for pid in (first, *usage.descendants(first)):
            os.write(writer, b"%d %d\n" % (pid, usage.proportional(pid)))
    finally:
        os._exit(0)


def _bury() -> None:
    """Take notice of children that have ended by now."""
    for child in [*_ending]:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                continue
        _ending.remove(child)
