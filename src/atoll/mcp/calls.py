"""Calls that can be given up: while one runs, its thread waits for the sandbox and for a cancellation at once."""

from __future__ import annotations

import os
import select
import socket
from _thread import _local, allocate_lock
from collections.abc import Callable
from time import monotonic

from ..io import SEND_TIMEOUT, BlockingIO, Lock, Shield, _recv_fds, _unblock

_GONE = select.POLLHUP | select.POLLERR
_SLICE = 0.05
"""How often somebody who waits for a lock looks up, in seconds."""

_PROMPT = 0.002
"""Seconds after which a call is not a short one any more, even if it never has to wait."""


class Cancelled(BaseException):
    """The client does not want the answer any more. Not an Exception: it ends everything, as Ctrl-C does."""


class Call:
    """One request under way. Any thread may `cancel` it; the thread that runs it gets `Cancelled`, once.

    Args:
        peer: a socket's descriptor whose end means that nobody waits for the answer any more; -1 for none. One that
            sends no more may still read; then `probe` is called, once, to find out.
        every: seconds between two calls of `tick` while it waits; 0 for none.
        linger: called once, when it turns out that the call is not over at once.
    """

    def __init__(
        self,
        peer: int = -1,
        every: float = 0.0,
        tick: Callable[[], None] | None = None,
        linger: Callable[[], None] | None = None,
        probe: Callable[[], None] | None = None,
    ) -> None:
        self.cancelled = False
        self.linger = linger
        self._began = monotonic() if linger else 0.0
        self.peer = peer
        self._probe = probe
        self._doubted = False
        self.shielded = 0
        self._every = every
        self._tick = tick
        self._due = monotonic() + every if every else None
        self._struck = False
        self._wake = -1
        self._lock = allocate_lock()

    def cancel(self) -> None:
        """Have it end as soon as it waits for anything. Doing so twice, or after its end, is harmless."""
        with self._lock:
            self.cancelled = True
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def check(self) -> None:
        """Raises Cancelled, the first time after `cancel` and outside of a shield: who cleans up is left alone."""
        if self.cancelled and not self._struck and not self.shielded:
            self._struck = True
            raise Cancelled

    def take_time(self, *, waits: bool = True) -> None:
        """It waits, or may be taking long: have `linger` called, if it was not."""
        if self.linger is not None and (waits or monotonic() - self._began > _PROMPT):
            linger, self.linger = self.linger, None
            linger()

    def __enter__(self) -> None:
        """This thread runs it from now on."""
        wake = getattr(_here, "wake", -1)
        if wake < 0:
            wake = _here.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        with self._lock:
            self._wake = wake
        _here.call = self

    def __exit__(self, *exc: object) -> None:
        _here.call = None
        with self._lock:
            wake, self._wake = self._wake, -1
        if self.cancelled:
            try:
                os.eventfd_read(wake)
            except BlockingIOError:
                pass  # it was cancelled before this thread took it

    def wait(self, fd: int, event: int, timeout: float | None) -> bool:
        """Whether the event came in time. Raises Cancelled."""
        self.take_time()
        poller = select.poll()
        if fd >= 0:
            poller.register(fd, event)
        if not (self._struck or self.shielded):
            poller.register(self._wake, select.POLLIN)
            if self.peer >= 0:
                poller.register(self.peer, _GONE if self._doubted else _GONE | select.POLLRDHUP)
        until = None if timeout is None else monotonic() + timeout
        while True:
            self.check()
            ready = poller.poll(self._patience(until))
            for which, events in ready:
                if which == fd:
                    return True
                if which == self.peer:
                    self._judge(events)
                    poller.modify(self.peer, _GONE)
            if not ready and until is not None and monotonic() >= until:
                return False
            self.look_up()

    def look_up(self) -> None:
        """Between two waits: tell that it still runs, and see whether somebody still wants it. Raises Cancelled."""
        if self._due is not None and self._tick is not None and monotonic() >= self._due:
            self._due = monotonic() + self._every
            self._tick()
        self.check()

    def look_at_peer(self) -> None:
        """Cancel it if nobody waits for the answer any more."""
        if self.peer < 0:
            return
        poller = select.poll()
        poller.register(self.peer, _GONE if self._doubted else _GONE | select.POLLRDHUP)
        for _, events in poller.poll(0):
            self._judge(events)

    def _judge(self, events: int) -> None:
        if events & _GONE:
            self.cancel()
        elif not self._doubted:
            self._doubted = True
            if self._probe is not None:
                self._probe()

    def _patience(self, until: float | None) -> float | None:
        """Milliseconds for poll(): until the caller's end or the next tick."""
        moments = [moment for moment in (until, self._due) if moment is not None]
        return min(max(min(moments) - monotonic(), 0.0), 2e6) * 1000 + 0.5 if moments else None


_here = _local()


def current() -> Call | None:
    """The call that this thread runs."""
    return getattr(_here, "call", None)


class InterruptibleIO(BlockingIO):
    """Blocking I/O, of which every wait ends with `Cancelled` when the call of its thread is cancelled.

    All of atoll's host side treats that as it treats Ctrl-C: streams are closed, and the guest ends what it was
    doing for them, with everything that it started.
    """

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        call = current()
        if call is None:
            return await super().recv(sock, size, timeout)
        _unblock(sock)
        call.check()
        while True:
            if call.linger is not None:
                call.take_time(waits=False)
            _wait(call, sock, select.POLLIN, timeout)
            try:
                return sock.recv(size)
            except BlockingIOError:
                continue

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        call = current()
        if call is None:
            return await super().recv_fds(sock, size, count, timeout)
        _unblock(sock)
        while True:
            _wait(call, sock, select.POLLIN, timeout)
            try:
                return _recv_fds(sock, size, count)
            except BlockingIOError:
                continue

    async def send(self, sock: socket.socket, data: bytes) -> None:
        call = current()
        if call is None:
            return await super().send(sock, data)
        _unblock(sock)
        call.check()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except BlockingIOError:
                _wait(call, sock, select.POLLOUT, SEND_TIMEOUT)
        return None

    async def sleep(self, seconds: float) -> None:
        call = current()
        if call is None:
            await super().sleep(seconds)
        else:
            call.wait(-1, 0, seconds)

    def lock(self) -> Lock:
        return _InterruptibleLock()

    def shield(self, seconds: float) -> Shield:
        return _CallShield(current())


def _wait(call: Call, sock: socket.socket, event: int, timeout: float | None) -> None:
    if not call.wait(sock.fileno(), event, timeout):
        raise TimeoutError("nothing happened in time")


class _InterruptibleLock:
    def __init__(self) -> None:
        self._lock = allocate_lock()
        self.release = self._lock.release

    async def acquire(self, timeout: float | None = None) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        call = current()
        if call is None:
            return self._lock.acquire() if timeout is None else self._lock.acquire(timeout=timeout)
        call.take_time()
        until = None if timeout is None else monotonic() + timeout
        while until is None or monotonic() < until:
            if self._lock.acquire(timeout=_SLICE if until is None else max(min(_SLICE, until - monotonic()), 0.0)):
                return True
            call.look_at_peer()
            call.look_up()
        return False


class _CallShield:
    def __init__(self, call: Call | None) -> None:
        self._call = call

    def __enter__(self) -> object:
        if self._call is not None:
            self._call.shielded += 1
        return self

    def __exit__(self, *exc: object) -> None:
        if self._call is not None:
            self._call.shielded -= 1
