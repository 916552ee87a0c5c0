"""HTTP/1.1 client: one request and its whole answer, over TCP, TLS, a proxy or a Unix socket.

http.client of the standard library speaks the protocol. Added here is what it leaves to its callers: an answer is
bounded in bytes, an exchange in time, both whatever the server sends; another thread can end it at any moment; what
two parsers may read differently is refused. A redirect is an answer like others, so no key follows one.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import Any, NamedTuple

from .address import Address, Proxy, find_proxy

MOST_BYTES = 64 << 20
MOST_IDLE = 64
IDLE_SECONDS = 50.0
CONNECT_SECONDS = 15.0
_PIECE = 1 << 18
_tls_lock = threading.Lock()
_tls: ssl.SSLContext | None = None

Wait = Callable[[socket.socket, float], bool]


class Answer(NamedTuple):
    """Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Lost(Exception):
    """The connection could not be made, or ended before the answer did; its cause may be an OSError.

    `again` says whether another try may help, `stale` that it was an old connection, which the server had closed in
    the meantime, `unreached` that there was none.
    """

    def __init__(self, message: str, *, again: bool = True, stale: bool = False, unreached: bool = False) -> None:
        super().__init__(message)
        self.again = again
        self.stale = stale
        self.unreached = unreached


class TooLarge(Exception):
    """The answer has more bytes than one may have."""

    def __init__(self) -> None:
        super().__init__("It sends more than it may.")


class Ticket:
    """What one thread gives to another so that it can end its conversation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._cancelled = False

    def hold(self, held: socket.socket | None) -> None:
        """From now on this is what `cancel` ends. Raises: Lost when it was cancelled already."""
        with self._lock:
            self._socket = held
            if self._cancelled and held is not None:
                raise Lost("It was cancelled.", again=False)

    def cancel(self) -> None:
        """Whoever waits for the socket stops waiting. It is closed by its own thread: its number could be another's."""
        with self._lock:
            self._cancelled = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the method of an SSL socket, which is for its own thread.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def ask(
    address: Address,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    within: float,
    most: int = MOST_BYTES,
    wait: Wait | None = None,
) -> Answer:
    """One request on a connection of its own, without a proxy. Blocks, for `within` seconds at most.

    Args:
        wait: how to wait until the socket can be read, for so many seconds at most; False when it was in vain.

    Raises: Lost, TooLarge.
    """
    connection = _Connection(_dial(address, None, Ticket(), within), wait=wait)
    with connection.socket:
        headers = {"Host": address.netloc, "Connection": "close", **headers}
        return connection.exchange(method, path, headers, body, within, most)[0]


def upgrade(
    address: Address,
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    within: float,
    accepted: tuple[int, ...] = (101,),
) -> socket.socket:
    """Leave HTTP on a connection of its own: its socket, from which nothing was read beyond the head of the answer.

    Raises:
        Lost: there was no answer.
        Refused: it has another status than those accepted.
    """
    sock = _dial(address, None, Ticket(), within)
    try:
        head = _Connection(sock, ahead=1).head(method, path, {"Host": address.netloc, **headers}, None, within)
        if head.status not in accepted:
            raise Refused(head.status, head.reason)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


class Refused(Exception):
    """The server answers with another status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status


class Client:
    """POST requests to one server, through the environment's proxy, over connections that are kept.

    Any number of threads may use it at once.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[tuple[float, _Connection]] = []

    def post(self, path: str, headers: dict[str, str], body: bytes, ticket: Ticket, within: float) -> Answer:
        """Send a request and read the whole answer, in `within` seconds at most.

        Raises: Lost, TooLarge. Whatever happens, the connection is kept only if it can be used again.
        """
        proxy = find_proxy(self._address)
        connection = self._reuse(ticket)
        reused = connection is not None
        if connection is None:
            connection = _Connection(_dial(self._address, proxy, ticket, within))
        headers = {**headers, "Host": self._address.netloc}
        if proxy is not None and self._address.scheme == "http":
            path = f"http://{self._address.netloc}{path}"
            headers |= proxy_headers(proxy)
        kept = False
        try:
            answer, kept = connection.exchange("POST", path, headers, body, within, MOST_BYTES)
            return answer
        except Lost as lost:
            lost.stale = lost.stale and reused
            raise
        finally:
            ticket.hold(None)
            with self._lock:
                if kept := kept and len(self._idle) < MOST_IDLE:
                    self._idle.append((time.monotonic(), connection))
            if not kept:
                connection.socket.close()

    def close(self) -> None:
        """Close what is not in use now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.socket.close()

    def __del__(self) -> None:
        # A client that was forgotten leaves no connection behind.
        self.close()

    def _reuse(self, ticket: Ticket) -> _Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            try:
                if time.monotonic() - since < IDLE_SECONDS and connection.is_quiet():
                    ticket.hold(connection.socket)
                    return connection
            except BaseException:
                connection.socket.close()
                raise
            connection.socket.close()


def proxy_headers(proxy: Proxy) -> dict[str, str]:
    return {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}


class _Wire(io.RawIOBase):
    """What a socket sends, until a time and up to so many bytes."""

    def __init__(self, sock: socket.socket, wait: Wait | None) -> None:
        self._sock = sock
        self._wait = wait
        self.until: float | None = None
        self.left = 0
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises: TooLarge, OSError."""
        if self.left <= 0:
            raise TooLarge
        seconds = 0.0
        if self.until is not None:
            seconds = self.until - time.monotonic()
            if seconds <= 0 or not (self._wait is None or self._wait(self._sock, seconds)):
                raise TimeoutError
        self._sock.settimeout(seconds)
        try:
            count = self._sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        self.ended = not count
        self.left -= count
        return count


class _Reader(io.BufferedReader):
    """What http.client reads an answer from, and the next one: its closing closes nothing."""

    def makefile(self, *_: object) -> _Reader:
        return self

    def close(self) -> None:
        pass


class _Connection:
    def __init__(self, sock: socket.socket, *, wait: Wait | None = None, ahead: int = _PIECE) -> None:
        self.socket = sock
        self._wire = _Wire(sock, wait)
        self._reader = _Reader(self._wire, ahead)

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer: neither an end nor bytes that nobody asked for."""
        self._wire.until, self._wire.left = None, 1
        try:
            return not self._reader.peek(1) and not self._wire.ended
        except OSError:
            return False

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, within: float, most: int
    ) -> tuple[Answer, bool]:
        """The answer, and whether the connection can be used again. Raises: Lost, TooLarge."""
        head = self.head(method, target, headers, body, within, most)
        found = {name.lower(): value.strip() for name, value in head.headers.items()}
        with _told():
            answer = Answer(head.status, found, _body(head, most))
        return answer, not head.will_close and head.version == 11

    def head(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, within: float, most: int = 0
    ) -> HTTPResponse:
        """Send a request; its answer up to the body, of which `most` bytes may be read. Raises: Lost."""
        # With chunks and heads it is longer.
        self._wire.until, self._wire.left = time.monotonic() + within, 2 * most + (1 << 20)
        self.socket.settimeout(within)
        sender = HTTPConnection("localhost")
        sender.sock = self.socket
        with _told():
            sender.request(method, target, body, headers)
            while True:
                head = HTTPResponse(self._reader, method=method)  # type: ignore[arg-type]  # only makefile is used
                head.begin()
                if self._wire.ended or not _is_clear(head):
                    raise HTTPException
                if head.status == 101 or head.status >= 200:
                    return head


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong inside is raised as Lost."""
    try:
        yield
    except TimeoutError as error:
        raise Lost("It took too long.") from error
    except RemoteDisconnected as error:
        raise Lost("The server closed the connection without an answer.", stale=True) from error
    except OSError as error:
        raise Lost(f"The connection broke: {error.strerror or type(error).__name__}.", stale=True) from error
    except (HTTPException, ValueError):
        raise Lost("What the server answered is no HTTP.") from None


def _is_clear(head: HTTPResponse) -> bool:
    """Whether a head can be read in one way only: not with a header that goes on in the next line, or two lengths."""
    found = head.headers
    lengths = {length.strip() for length in found.get_all("content-length", ())}
    return (
        not found.defects
        and not any("\n" in value for value in found.values())
        and len(lengths) < 2
        and all(length.isascii() and length.isdigit() for length in lengths)
        and found.get("transfer-encoding", "chunked").strip().lower() == "chunked"
    )


def _body(head: HTTPResponse, most: int) -> bytes:
    """Raises: Lost, TooLarge, OSError."""
    length: int | None = head.length
    if length is not None and length > most:
        raise TooLarge
    body = bytearray()
    is_whole = False
    try:
        while piece := head.read(_PIECE):
            body += piece
            if len(body) > most:
                raise TooLarge
        is_whole = length is None or len(body) == length
    except IncompleteRead as cut:
        body += cut.partial
    except (HTTPException, ValueError):
        pass
    if not is_whole:
        raise Lost(f"The answer was cut off after {len(body)}{f' of {length}' if length else ''} bytes.")
    return bytes(body)


def _dial(address: Address, proxy: Proxy | None, ticket: Ticket, within: float) -> socket.socket:
    """A connection to the address, verified if it is https. Raises: Lost."""
    connection = _connect(address if proxy is None else Address("http", proxy.host, proxy.port), proxy, within)
    try:
        ticket.hold(connection)
        if address.scheme != "https":
            return connection
        if proxy is not None:
            _tunnel(connection, address, proxy, within)
        return _wrap(connection, address.host, ticket)
    except BaseException:
        connection.close()
        raise


def _connect(address: Address, proxy: Proxy | None, within: float) -> socket.socket:
    within = min(within, CONNECT_SECONDS)
    called = f"{'the proxy ' if proxy else ''}{address.host}{f':{address.port}' if address.port else ''}"
    try:
        if address.scheme == "unix":
            return _connect_unix(address.host, within)
        connection = socket.create_connection((address.host, address.port), within)
    except socket.gaierror as error:
        again = error.errno == socket.EAI_AGAIN
        raise Lost(f"There is no host {address.host}: {error.strerror or error}.", again=again) from error
    except TimeoutError as error:
        raise Lost(f"{called} was not reached within {within:g} s.", unreached=True) from error
    except (OSError, UnicodeError) as error:
        raise Lost(f"{called} was not reached: {getattr(error, 'strerror', error)}.", unreached=True) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A model may think for minutes, and a peer that is gone would be waited for all the while.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


def _connect_unix(path: str, within: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(within)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _tunnel(sock: socket.socket, address: Address, proxy: Proxy, within: float) -> None:
    target = f"{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"
    try:
        # Byte by byte: what follows belongs to TLS.
        connection = _Connection(sock, ahead=1)
        head = connection.head("CONNECT", target, {"Host": target, **proxy_headers(proxy)}, None, within)
    except Lost as lost:
        raise Lost(f"The proxy {proxy.host} did not connect to {target}: {lost}") from None
    if not 200 <= head.status < 300:
        said = f"{head.status} {head.reason[:100] if head.reason.isprintable() else ''}"
        again = head.status >= 500
        raise Lost(f"The proxy {proxy.host} refused to connect to {target}; it said: {said}.", again=again)


def _wrap(connection: socket.socket, host: str, ticket: Ticket) -> ssl.SSLSocket:
    # The handshake comes after `hold`, so that it can be cancelled.
    wrapped = _context().wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        ticket.hold(wrapped)
        wrapped.do_handshake()
    except ssl.SSLCertVerificationError as error:
        wrapped.close()
        raise Lost(f"The certificate of {host} is not valid: {error.verify_message}.", again=False) from error
    except OSError as error:
        wrapped.close()
        raise Lost(f"{host} broke off before TLS was agreed: {error.strerror or error}.") from error
    except BaseException:
        wrapped.close()
        raise
    return wrapped


def _context() -> ssl.SSLContext:
    """With the certificates of the system, or of $SSL_CERT_FILE. Made once: it takes some milliseconds."""
    global _tls  # noqa: PLW0603 - a cache
    with _tls_lock:
        if _tls is None:
            _tls = ssl.create_default_context()
        return _tls
