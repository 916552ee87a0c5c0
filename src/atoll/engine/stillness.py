"""A pause that signals made, where there is no control group to freeze, kept up by looking.

A process cannot refuse to be stopped, but it can have the kernel send it SIGCONT: by a timer, or by whatever else
sends a signal of its choice.
"""

from __future__ import annotations

import contextlib
import os
import signal

from . import usage
from .watch import Steps, Watch

_BUSY, _IDLE = 0.25, 2.0


class Stillness(Watch):
    """Stops again who goes on, and kills who then goes on again; but for the first, which is no hostile code."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first
        self._stopped: set[int] = set()

    def _steps(self) -> Steps:
        found = yield from usage.of_each(self._first, usage.goes_on)
        awake = {pid for pid in usage.descendants(self._first) if found.get(pid)}
        for pid in awake:
            again = pid in self._stopped and pid != self._first
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if again else signal.SIGSTOP)
        self._stopped = awake
        return _BUSY if awake else _IDLE
