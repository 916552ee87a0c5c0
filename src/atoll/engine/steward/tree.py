"""The processes below a steward, where no wall holds them together."""

from __future__ import annotations

import os
import signal
import time

from .. import usage

_MOMENT = 0.0005


def adopt_orphans() -> None:
    """Whatever loses its parent below this process becomes its child, so `descendants` finds it."""
    # Not above: clients read the names of this module, and ctypes would cost them milliseconds.
    from .. import kernel

    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """All processes below one, without those that are dead."""
    parents = dict(filter(None, (_parent(entry) for entry in os.listdir("/proc") if entry.isdigit())))
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {pid})
        found |= more


def _parent(pid: str) -> tuple[int, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in (b"Z", b"X") else (int(pid), int(parent))


def signal_all(pid: int, number: int) -> None:
    """To all processes below one, until no new one appears: who is stopped starts no others."""
    reached: set[int] = set()
    while new := set(descendants(pid)) - reached:
        for target in new:
            try:
                os.kill(target, number)
            except ProcessLookupError:
                pass  # it was faster
        reached |= new


def kill_all(own: int) -> None:
    """Kill all below this process, `own`, which adopts orphans: stopped first, so that none forks away.

    What the kernel tells of a process's children is quick to read, and may miss one that comes while another goes. That
    is why it ends when there is no child left to wait for.
    """
    quick = os.path.exists("/proc/thread-self/children")
    while _has_children():
        below = usage.descendants(own)[1:] if quick else descendants(own)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for target in below:
                try:
                    os.kill(target, number)
                except ProcessLookupError:
                    pass  # it was faster


def _has_children() -> bool:
    """Whether there are any but dead ones, of which notice is taken. If so, after a moment."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    time.sleep(_MOMENT)
    return True
