"""Which process it was: a pid alone may have been given to another one since."""

from __future__ import annotations

import os
from typing import NamedTuple

# Elsewhere than on Linux nothing cheap tells two processes with one pid apart.
_HAS_PROC = os.path.exists("/proc/self/stat")


class ProcessId(NamedTuple):
    """A process for all time on this machine. `started` counts clock ticks since the boot named `boot`."""

    pid: int
    started: int
    boot: str


def current() -> ProcessId:
    return ProcessId(os.getpid(), _started(os.getpid()) or 0, _boot())


def is_alive(process: ProcessId) -> bool:
    """Whether that very process still runs. One that is dead and not yet reaped does not."""
    return process.boot == _boot() and _started(process.pid) == process.started


def _started(pid: int) -> int | None:
    """Field 22 of stat; the name before it may hold spaces and brackets. None for a dead process."""
    if not _HAS_PROC:
        return _exists(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _exists(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


def _boot() -> str:
    if not _HAS_PROC:
        return ""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
