"""POST requests over connections that are kept: blocking, to be called in threads."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from .dialing import Lost, Ticket, dial
from .proxies import find_proxy

if TYPE_CHECKING:
    from .endpoint import Address

MOST_BYTES = 64 * 1024 * 1024
MOST_IDLE = 64
IDLE_SECONDS = 50.0
_PIECE = 1 << 20


class Answer(NamedTuple):
    """Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class TooLarge(Exception):
    """The answer has more bytes than one may have."""


class Transport:
    """Connections to one server. Any number of threads may use it at once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def post(self, path: str, headers: dict[str, str], body: bytes, ticket: Ticket, within: float) -> Answer:
        """Send a request and read the whole answer; each wait for the network is bounded by `within` seconds.

        Raises: Lost, TooLarge. Whatever happens, the connection is kept only if it can be used again.
        """
        proxy = find_proxy(self._address, os.environ)
        connection = self._reuse(ticket)
        reused = connection is not None
        if connection is None:
            connection = http.client.HTTPConnection(self._address.host, self._address.port)
            connection.auto_open = 0
            connection.sock = dial(self._address, proxy, ticket)
        target = path
        if proxy is not None and self._address.scheme == "http":
            target = f"http://{self._address.netloc}{path}"
            headers = {**headers, "Proxy-Authorization": proxy.authorization} if proxy.authorization else headers
        kept = False
        try:
            connection.sock.settimeout(within)
            answer, kept = _exchange(connection, target, {**headers, "Host": self._address.netloc}, body, reused=reused)
            return answer
        finally:
            ticket.let_go()
            if kept:
                self._keep(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close what is not in use now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def __del__(self) -> None:
        # A model that was forgotten leaves no connection behind.
        self.close()

    def _reuse(self, ticket: Ticket) -> http.client.HTTPConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and _is_quiet(connection.sock):
                ticket.hold(connection.sock)
                return connection
            connection.close()

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


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
    connection: http.client.HTTPConnection, target: str, headers: dict[str, str], body: bytes, *, reused: bool
) -> tuple[Answer, bool]:
    """The answer, and whether the connection can be used again."""
    try:
        connection.request("POST", target, body, headers)
        response = connection.getresponse()
    except TimeoutError:
        raise Lost("It took too long.") from None
    except http.client.RemoteDisconnected:
        raise Lost("The server closed the connection without an answer.", stale=reused) from None
    except http.client.HTTPException as error:
        raise Lost(f"What the server answered is no HTTP ({type(error).__name__}).") from None
    except OSError as error:
        raise Lost(f"The connection broke: {error.strerror or type(error).__name__}.", stale=reused) from None
    content = _read(response)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, content), not response.will_close


def _read(response: http.client.HTTPResponse) -> bytes:
    """The whole body. Raises: Lost, TooLarge."""
    length = response.length
    if length is not None and length > MOST_BYTES:
        raise TooLarge
    content = bytearray()
    try:
        while piece := response.read(_PIECE):
            content += piece
            if len(content) > MOST_BYTES:
                raise TooLarge
    except TimeoutError:
        raise Lost("It took too long.") from None
    except (http.client.HTTPException, OSError, ValueError):
        raise Lost(f"The answer was cut off after {len(content)} bytes.") from None
    if length is not None and len(content) < length:
        raise Lost(f"The answer was cut off after {len(content)} of {length} bytes.")
    return bytes(content)
