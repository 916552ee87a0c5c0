"""Ending a request that runs in a context: SIGINT as soon as it runs, once more, then SIGKILL."""

from __future__ import annotations

from typing import Optional

from .contextlink import ContextLink
from .loop import Timer
from .machine import Machine

GRACE = 1.0
"""Between SIGINT and SIGKILL."""

_RETRY = 0.005


class Pressing:
    """Goes on until `cease`."""

    def __init__(self, machine: Machine, link: ContextLink) -> None:
        self._loop = machine.loop
        self._link = link
        self._timer: Optional[Timer] = None
        self._press(GRACE)

    def cease(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _press(self, left: float) -> None:
        if left <= 0:
            self._link.kill()
            return
        pause = GRACE / 2 if self._link.interrupt() else _RETRY
        self._timer = self._loop.after(pause, lambda: self._press(left - pause))
