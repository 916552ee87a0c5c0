"""The guest's only thread of control: descriptors, timers, and signals, on one epoll.

Nothing here wakes up when nothing happens.
"""

from __future__ import annotations

import heapq
import os
import select
import signal
import sys
import traceback
from collections import deque
from time import monotonic
from typing import Callable, Deque, Dict, List, Optional, Tuple

IN = select.EPOLLIN
OUT = select.EPOLLOUT

_MANY = 64

Callback = Callable[[], object]
FdCallback = Callable[[int], None]


class Timer:
    """Something to happen once. Cancelling one that has happened does nothing."""

    __slots__ = ("_loop", "callback")

    def __init__(self, loop: Loop, callback: Callback) -> None:
        self._loop = loop
        self.callback: Optional[Callback] = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._loop.forget_cancelled()


class Loop:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: Dict[int, FdCallback] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._made = 0
        self._cancelled = 0
        self._soon: Deque[Callback] = deque()
        self._last: Dict[Callback, None] = {}
        self._stopped = False

    def watch(self, fd: int, events: int, callback: FdCallback) -> None:
        """Call back with the event mask, each time round, for as long as something is there."""
        if fd in self._handlers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._handlers[fd] = callback

    def forget(self, fd: int) -> None:
        """Always before closing it: a descriptor that a child still holds would stay in the epoll."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def after(self, seconds: float, callback: Callback) -> Timer:
        timer = Timer(self, callback)
        self._made += 1
        heapq.heappush(self._timers, (monotonic() + seconds, self._made, timer))
        return timer

    def forget_cancelled(self) -> None:
        """A cancelled timer keeps its place until its time. Commands end long before their timeouts, so
        most are cancelled ones, and now and then all of those go."""
        self._cancelled += 1
        if self._cancelled > _MANY and self._cancelled > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def soon(self, callback: Callback) -> None:
        """In the next round, after descriptors had their turn."""
        self._soon.append(callback)

    def last(self, callback: Callback) -> None:
        """Once, at the end of this round, before the loop sleeps."""
        self._last[callback] = None

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        while not self._stopped:
            self.turn()

    def turn(self) -> None:
        """Sleep until something happens, and deal with it."""
        for fd, mask in self._epoll.poll(self._patience()):
            handler = self._handlers.get(fd)
            if handler is not None:
                _guarded(handler, mask)
        self._run_timers()
        for _ in range(len(self._soon)):
            _guarded(self._soon.popleft())
        while self._last:
            _guarded(self._last.popitem()[0])

    def _patience(self) -> Optional[float]:
        """How long to sleep; None is for ever, as is every poll without a timer."""
        if self._soon:
            return 0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= monotonic():
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                _guarded(callback)


class Signals:
    """Wakes the loop when a signal comes.

    The handlers are functions rather than SIG_IGN because a command would inherit that.
    """

    def __init__(self, loop: Loop, handlers: Dict[int, Callback]) -> None:
        self._handlers = handlers
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in handlers:
            signal.signal(number, nothing)
        loop.watch(self._read, IN, self._wake)

    def _wake(self, _mask: int) -> None:
        for number in set(os.read(self._read, 4096)):
            handler = self._handlers.get(number)
            if handler is not None:
                handler()


def nothing(*_arguments: object) -> None:
    """For who has to name a callback and wants none."""


def _guarded(callback: Callable[..., object], *arguments: object) -> None:
    """One broken callback must not end the sandbox; its story goes to the guest's own stderr."""
    try:
        callback(*arguments)
    except Exception:  # noqa: BLE001  # whatever it is, the other clients go on
        traceback.print_exc(file=sys.stderr)
