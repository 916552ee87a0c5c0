"""The little I/O that atoll's host side needs, in a blocking and an asynchronous form.

Everything above is written once, as coroutines against `IO`. With `BlockingIO` no coroutine ever
suspends, so `drive` runs one to its end without an event loop; importing one costs more than a
sandbox does (docs/decisions/0002-one-source-for-sync-and-async.md).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

RECEIVE_SIZE = 1 << 18


class IO(Protocol):
    """What a coroutine of the host side may wait for."""

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        """Bytes, or b"" at the end of the stream.

        Raises:
            TimeoutError: nothing came in time.
        """

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        """One message and the descriptors that came with it. Raises TimeoutError as `recv` does."""

    async def send(self, sock: socket.socket, data: bytes) -> None:
        """All of `data`."""

    async def sleep(self, seconds: float) -> None: ...

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run something that touches the disk for long, off the event loop if there is one."""


class BlockingIO:
    """Plain blocking calls. Nothing here ever suspends."""

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        sock.settimeout(timeout)
        return sock.recv(size)

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        sock.settimeout(timeout)
        data, fds, _, _ = socket.recv_fds(sock, size, count, socket.MSG_CMSG_CLOEXEC)
        return data, fds

    async def send(self, sock: socket.socket, data: bytes) -> None:
        sock.settimeout(None)
        sock.sendall(data)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def in_thread(self, function: Callable[[], T]) -> T:
        return function()


class AnyIO:
    """The same on whichever event loop runs, asyncio or trio, through anyio."""

    async def recv(self, sock: socket.socket, size: int, timeout: float | None) -> bytes:
        import anyio

        sock.setblocking(False)
        with anyio.fail_after(timeout):
            while True:
                try:
                    return sock.recv(size)
                except BlockingIOError:
                    await anyio.wait_readable(sock)

    async def recv_fds(
        self, sock: socket.socket, size: int, count: int, timeout: float | None
    ) -> tuple[bytes, list[int]]:
        import anyio

        sock.setblocking(False)
        with anyio.fail_after(timeout):
            while True:
                try:
                    data, fds, _, _ = socket.recv_fds(sock, size, count, socket.MSG_CMSG_CLOEXEC)
                    return data, fds
                except BlockingIOError:
                    await anyio.wait_readable(sock)

    async def send(self, sock: socket.socket, data: bytes) -> None:
        import anyio

        sock.setblocking(False)
        view = memoryview(data)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(sock)

    async def sleep(self, seconds: float) -> None:
        import anyio

        await anyio.sleep(seconds)

    async def in_thread(self, function: Callable[[], T]) -> T:
        import anyio.to_thread

        return await anyio.to_thread.run_sync(function)


class Stream:
    """A connected socket as a `GuestStream`."""

    def __init__(self, io: IO, sock: socket.socket) -> None:
        self._io = io
        self._sock = sock

    async def send(self, data: bytes) -> None:
        await self._io.send(self._sock, data)

    async def recv(self, timeout: float | None = None) -> bytes:
        return await self._io.recv(self._sock, RECEIVE_SIZE, timeout)

    def close(self) -> None:
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
