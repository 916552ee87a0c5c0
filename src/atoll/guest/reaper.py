"""The one place that waits for children, the guest's own and the orphans that a pid 1 adopts."""

from __future__ import annotations

import os
from typing import Callable, Dict

Exited = Callable[[int], None]


class Reaper:
    def __init__(self) -> None:
        self._watched: Dict[int, Exited] = {}

    def watch(self, pid: int, exited: Exited) -> None:
        """Call back with the wait status, once."""
        self._watched[pid] = exited

    def awaits(self, pid: int) -> bool:
        """Whether it is a process that the guest itself has started."""
        return pid in self._watched

    def reap(self) -> None:
        """After every SIGCHLD: many exits may hide behind one signal."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            exited = self._watched.pop(pid, None)
            if exited is not None:
                exited(status)


def exit_code(status: int) -> int:
    """As a shell tells it: 128 + n when signal n ended the process."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
