"""The little I/O that atoll's host side needs, in a blocking and an asynchronous form.

Everything above is written once, as coroutines against `IO`. With `BlockingIO` no coroutine ever
suspends, so `drive` runs one to its end without an event loop; importing one costs more than a
sandbox does (docs/decisions/0002-one-source-for-sync-and-async.md).
"""

from __future__ import annotations

import _thread
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

RECEIVE_SIZE = 1 << 16
_LARGE_SIZE = 1 << 18
SEND_TIMEOUT = 30.0
"""An honest peer always reads; one that has taken nothing for so long is not answering."""


class Lock(Protocol):
    async def acquire(self, timeout: float | None = None) -> bool:
        """Whether it was had in time. Without a timeout it waits for as long as it takes."""

    def release(self) -> None: ...


class Shield(Protocol):
    """A `with` block that a cancellation does not interrupt until its time is over."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


class IO(Protocol):
    """What a coroutine of the host side may wait for. One socket may be sent to and received from at once."""

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        """Bytes, or b"" at the end of the stream. What is cancelled or late has taken nothing.

        Raises:
            TimeoutError: nothing came in time.
        """

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        """One message and the descriptors that came with it. Raises TimeoutError as `recv` does."""

    async def send(self, sock: socket.socket, data: bytes) -> None:
        """All of `data`.

        Raises:
            TimeoutError: the peer took nothing for `SEND_TIMEOUT` seconds.
        """

    def who(self) -> object:
        """The thread or task that runs this, to be compared with another answer."""

    async def sleep(self, seconds: float) -> None: ...

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run something that touches the disk for long, off the event loop if there is one."""

    async def call(self, function: Callable[[], Any], timeout: float | None) -> Any:
        """Run a function of the caller's, and await what it gives if that can be awaited.

        Raises:
            TimeoutError: it took too long; its thread goes on, and what it gives is dropped.
            TypeError: it must be awaited, and there is no event loop.
        """

    def lock(self) -> Lock: ...

    def shield(self, seconds: float) -> Shield:
        """For what must be cleaned up even when the task is cancelled."""


class BlockingIO:
    """Plain blocking calls. Nothing here ever suspends.

    Sockets are kept non-blocking and waited for with poll(): a socket's own timeout is shared by its
    reader and its writer, poll's is not.
    """

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        _unblock(sock)
        while True:
            _wait(sock, select.POLLIN, timeout)
            try:
                return sock.recv(size)
            except BlockingIOError:
                continue

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        _unblock(sock)
        while True:
            _wait(sock, select.POLLIN, timeout)
            try:
                return _recv_fds(sock, size, count)
            except BlockingIOError:
                continue

    async def send(self, sock: socket.socket, data: bytes) -> None:
        _unblock(sock)
        rest: bytes | memoryview = data
        while rest:
            try:
                sent = sock.send(rest)
            except BlockingIOError:
                _wait(sock, select.POLLOUT, SEND_TIMEOUT)
            else:
                if sent == len(rest):
                    return
                rest = memoryview(rest)[sent:]

    def who(self) -> object:
        return _thread.get_ident()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def in_thread(self, function: Callable[[], T]) -> T:
        return function()

    async def call(self, function: Callable[[], Any], timeout: float | None) -> Any:
        value = function() if timeout is None else _in_time(function, timeout)
        if hasattr(value, "__await__"):
            value.close()
            raise TypeError("it is a coroutine function, which only an AsyncSandbox can call")
        return value

    def lock(self) -> Lock:
        return _ThreadLock()

    def shield(self, seconds: float) -> Shield:
        return _NoShield()


class AnyIO:
    """The same on whichever event loop runs, asyncio or trio, through anyio."""

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        return await self._receive(sock, lambda: sock.recv(size), timeout)

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        return await self._receive(sock, lambda: _recv_fds(sock, size, count), timeout)

    async def _receive(self, sock: socket.socket, take: Callable[[], T], timeout: float | None) -> T:
        import anyio
        import anyio.lowlevel

        _unblock(sock)
        # Before and not after: a cancellation must not lose what was taken.
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(timeout):
            while True:
                try:
                    return take()
                except BlockingIOError:
                    await anyio.wait_readable(sock)

    async def send(self, sock: socket.socket, data: bytes) -> None:
        import anyio

        _unblock(sock)
        view = memoryview(data)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                with anyio.fail_after(SEND_TIMEOUT):
                    await anyio.wait_writable(sock)

    def who(self) -> object:
        import anyio

        return anyio.get_current_task().id

    async def sleep(self, seconds: float) -> None:
        import anyio

        await anyio.sleep(seconds)

    async def in_thread(self, function: Callable[[], T]) -> T:
        import anyio.to_thread

        return await anyio.to_thread.run_sync(function)

    async def call(self, function: Callable[[], Any], timeout: float | None) -> Any:
        import anyio
        import anyio.to_thread

        with anyio.fail_after(timeout):
            # In a thread, where a plain function may block; a coroutine function only makes its coroutine there.
            # It comes in a tuple, since trio lets no bare coroutine out of a thread.
            (value,) = await anyio.to_thread.run_sync(lambda: (function(),), abandon_on_cancel=True)
            return await value if hasattr(value, "__await__") else value

    def lock(self) -> Lock:
        return _TaskLock()

    def shield(self, seconds: float) -> Shield:
        import anyio

        return anyio.move_on_after(seconds, shield=True)


class Stream:
    """A connected socket as a `GuestStream`.

    `close` may be called while another thread or task waits in `recv`: that one then sees the end, and
    the descriptor is given back only when nobody uses it. After a fork only the maker ends the stream.
    """

    def __init__(self, io: IO, sock: socket.socket) -> None:
        self._size = RECEIVE_SIZE
        self._io = io
        self._sock = sock
        self._maker = os.getpid()
        self._users = 0
        self._closed = False

    async def send(self, data: bytes) -> None:
        self._users += 1
        try:
            await self._io.send(self._sock, data)
        finally:
            self._leave()

    async def recv(self, timeout: float | None = None) -> bytes:
        self._users += 1
        try:
            data = await self._io.recv(self._sock, self._size, timeout)
        finally:
            self._leave()
        # Who has so much to say may have more; a large buffer for every few bytes would cost more than it helps.
        self._size = _LARGE_SIZE if len(data) >= RECEIVE_SIZE else RECEIVE_SIZE
        return data

    def stale(self) -> bool:
        """Whether an idle stream has ended or has bytes that nobody asked for: no more use to anyone."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if os.getpid() == self._maker:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the peer was faster
        if not self._users:
            self._sock.close()

    def _leave(self) -> None:
        self._users -= 1
        if self._closed and not self._users:
            self._sock.close()

    def __del__(self) -> None:
        # A sandbox outlives the object that speaks to it, so dropping one is no mistake to warn about.
        self._sock.close()


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses only `BlockingIO`.

    Raises:
        RuntimeError: it tried to suspend, which means that it waits on something other than its IO.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("a coroutine suspended without an event loop")


class _ThreadLock:
    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self.release = self._lock.release

    async def acquire(self, timeout: float | None = None) -> bool:
        return self._lock.acquire() if timeout is None else self._lock.acquire(timeout=timeout)


class _TaskLock:
    def __init__(self) -> None:
        import anyio

        # Not an anyio.Lock, which only the task that has it may release: an iteration may be ended by another.
        self._lock = anyio.Semaphore(1, max_value=1, fast_acquire=True)
        self.release = self._lock.release

    async def acquire(self, timeout: float | None = None) -> bool:
        import anyio

        try:
            self._lock.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(timeout):
                await self._lock.acquire()
                return True
            return False
        return True


def _in_time(function: Callable[[], T], timeout: float) -> T:
    """Run it in a thread and wait for it no longer than that. Raises what it raises, and TimeoutError."""
    outcome: list[tuple[T | None, BaseException | None]] = []
    over = _thread.allocate_lock()
    over.acquire()

    def attempt() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:  # noqa: BLE001  # raised again by who waits
            outcome.append((None, error))
        finally:
            over.release()

    _thread.start_new_thread(attempt, ())
    if not over.acquire(timeout=min(timeout, _thread.TIMEOUT_MAX)):
        raise TimeoutError
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # there was no error, so this is what the function gave


class _NoShield:
    def __enter__(self) -> object:
        return self

    def __exit__(self, *exc: object) -> None: ...


def _unblock(sock: socket.socket) -> None:
    if sock.gettimeout() != 0.0:
        sock.setblocking(False)


def _wait(sock: socket.socket, event: int, timeout: float | None) -> None:
    poller = select.poll()
    poller.register(sock, event)
    # poll() counts milliseconds in an int: more than three weeks are three weeks.
    if not poller.poll(None if timeout is None else min(max(timeout, 0.0), 2e6) * 1000):
        raise TimeoutError("nothing happened in time")


def _recv_fds(sock: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """As `socket.recv_fds`, which ignores its flags: what it receives would be inherited by children."""
    data, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_LEN(count * 4), socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = payload[: len(payload) // 4 * 4]
            fds += (int.from_bytes(whole[at : at + 4], sys.byteorder) for at in range(0, len(whole), 4))
    return data, fds
