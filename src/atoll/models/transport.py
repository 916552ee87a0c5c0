"""POST requests over connections that are kept: blocking, to be called in threads."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from .dialing import Lost, Ticket, dial
from .http1 import Answer, Ended, NotHTTP, Reader, receive, send
from .proxies import find_proxy

if TYPE_CHECKING:
    from .endpoint import Address

MOST_IDLE = 64
IDLE_SECONDS = 50.0


class Connection(NamedTuple):
    socket: socket.socket
    reader: Reader


class Transport:
    """Connections to one server. Any number of threads may use it at once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection]] = []

    def post(self, path: str, headers: dict[str, str], body: bytes, ticket: Ticket, within: float) -> Answer:
        """Send a request and read the whole answer; each wait for the network is bounded by `within` seconds.

        Raises: Lost, TooLarge. Whatever happens, the connection is kept only if it can be used again.
        """
        proxy = find_proxy(self._address, os.environ)
        connection = self._reuse(ticket)
        reused = connection is not None
        if connection is None:
            dialled = dial(self._address, proxy, ticket)
            connection = Connection(dialled, Reader(dialled))
        target = path
        if proxy is not None and self._address.scheme == "http":
            target = f"http://{self._address.netloc}{path}"
            headers = {**headers, "Proxy-Authorization": proxy.authorization} if proxy.authorization else headers
        kept = False
        try:
            connection.socket.settimeout(within)
            answer, kept = _exchange(connection, target, {**headers, "Host": self._address.netloc}, body, reused=reused)
            return answer
        finally:
            ticket.let_go()
            if kept:
                self._keep(connection)
            else:
                connection.socket.close()

    def close(self) -> None:
        """Close what is not in use now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.socket.close()

    def __del__(self) -> None:
        # A model that was forgotten leaves no connection behind.
        self.close()

    def _reuse(self, ticket: Ticket) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and _is_quiet(connection.socket):
                try:
                    ticket.hold(connection.socket)
                except Lost:
                    # It was cancelled a moment ago: nobody else has the connection.
                    connection.socket.close()
                    raise
                return connection
            connection.socket.close()

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append((time.monotonic(), connection))
                return
        connection.socket.close()


def _is_quiet(connection: socket.socket) -> bool:
    """Whether nothing has come since the last answer: neither an end nor bytes that nobody asked for."""
    try:
        connection.settimeout(0)
        # Not the method of an SSL socket, which cannot look ahead.
        socket.socket.recv(connection, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _exchange(
    connection: Connection, target: str, headers: dict[str, str], body: bytes, *, reused: bool
) -> tuple[Answer, bool]:
    """The answer, and whether the connection can be used again. Raises: Lost, TooLarge."""
    try:
        send(connection.socket, target, headers, body)
        return receive(connection.reader)
    except TimeoutError:
        raise Lost("It took too long.") from None
    except NotHTTP:
        raise Lost("What the server answered is no HTTP.") from None
    except Ended as end:
        if end.got < 0:
            raise Lost("The server closed the connection without an answer.", stale=reused) from None
        of = "" if end.of is None else f" of {end.of}"
        raise Lost(f"The answer was cut off after {end.got}{of} bytes.") from None
    except OSError as error:
        raise Lost(f"The connection broke: {error.strerror or type(error).__name__}.", stale=reused) from None
