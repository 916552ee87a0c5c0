"""Ctrl-C, SIGTERM and SIGHUP as an exception that never strikes where it would leave a sandbox behind."""

from __future__ import annotations

import atexit
import signal
import time
from typing import Self

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CLEANING = 5.0
_HEARTBEAT = 0.25


class Stopped(BaseException):
    """The user or the system wants us to end. Not an Exception: nothing but cleaning up may come between."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Interrupts:
    """Raises `Stopped` when a signal comes; inside a `with held(…)` block, when the block is left.

    After the first signal others are ignored for a while, so that the second of two quick Ctrl-C does
    not break the cleaning up.
    """

    def __init__(self) -> None:
        self._held = False
        self._patience = 0.0
        self._waiting: int | None = None
        self._came = 0.0
        self._struck = -_CLEANING
        for number in _STOPPING:
            # What was ignored from the start, by nohup or a background job, stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, self._on_heartbeat)
        # Python hears of a signal that comes just before a system call only when that call is over, and a wait
        # for output may never be. The heartbeat ends every wait for a moment.
        signal.setitimer(signal.ITIMER_REAL, _HEARTBEAT, _HEARTBEAT)
        # An interpreter that ends gives signals their defaults back, and this one's is death.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)

    def held(self, patience: float) -> Self:
        """For a `with` block that must not be broken up, unless it goes on for `patience` seconds after the signal."""
        self._patience = patience
        return self

    def __enter__(self) -> Self:
        self._held = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._held = False
        if self._waiting is not None:
            self._strike(self._waiting)

    def _on_signal(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self._waiting is not None or now - self._struck < _CLEANING:
            return
        if not self._held:
            self._strike(number)
        self._waiting, self._came = number, now

    def _on_heartbeat(self, number: int, frame: object) -> None:
        if self._held and self._waiting is not None and time.monotonic() - self._came >= self._patience:
            self._strike(self._waiting)

    def _strike(self, number: int) -> None:
        self._waiting = None
        self._struck = time.monotonic()
        raise Stopped(number)
