"""Sockets to a server: through a proxy, through TLS, and closable by another thread at any moment."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from .endpoint import Address
    from .proxies import Proxy

CONNECT_SECONDS = 15.0
_LONGEST_PROXY_ANSWER = 65536
_tls_lock = threading.Lock()
_tls: ssl.SSLContext | None = None


class Lost(Exception):
    """The connection could not be made, or ended before the answer did. `again` says whether another try may help,
    `stale` that it was an old connection, which the server had closed in the meantime, `unreached` that there was
    none."""

    def __init__(self, message: str, *, again: bool = True, stale: bool = False, unreached: bool = False) -> None:
        super().__init__(message)
        self.again = again
        self.stale = stale
        self.unreached = unreached


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
            if self._cancelled:
                raise Lost("It was cancelled.", again=False)

    def let_go(self) -> None:
        with self._lock:
            self._socket = None

    def cancel(self) -> None:
        """Whoever waits for the socket stops waiting. It is closed by its own thread: its number could be another's."""
        with self._lock:
            self._cancelled = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the method of an SSL socket, which is for its own thread.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def dial(address: Address, proxy: Proxy | None, ticket: Ticket) -> socket.socket:
    """A connection to the address, verified if it is https.

    Raises: Lost.
    """
    host, port = (proxy.host, proxy.port) if proxy else (address.host, address.port)
    connection = _connect(host, port, ticket, f"the proxy {host}" if proxy else host)
    try:
        if proxy is not None and address.scheme == "https":
            _tunnel(connection, address, proxy)
        return _wrap(connection, address.host, ticket) if address.scheme == "https" else connection
    except BaseException:
        connection.close()
        raise


def _connect(host: str, port: int, ticket: Ticket, called: str) -> socket.socket:
    try:
        # As bytes: for a str Python would import its tables of international names first.
        found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        again = error.errno == socket.EAI_AGAIN
        raise Lost(f"There is no host {host}: {error.strerror or error}.", again=again) from None
    failure: Exception | None = None
    for family, kind, protocol, _, where in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(CONNECT_SECONDS)
            ticket.hold(connection)
            connection.connect(where)
            _make_quick(connection)
            ticket.hold(connection)
        except TimeoutError:
            failure = Lost(f"{called}:{port} was not reached within {CONNECT_SECONDS:g} s.", unreached=True)
        except OSError as error:
            failure = Lost(f"{called}:{port} was not reached: {error.strerror or error}.", unreached=True)
        except BaseException:
            connection.close()
            raise
        else:
            return connection
        connection.close()
    raise failure or Lost(f"There is no host {host}.", again=False)


def _make_quick(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A model may think for minutes, and a peer that is gone would be waited for all the while.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _tunnel(connection: socket.socket, address: Address, proxy: Proxy) -> None:
    target = f"{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    answer = b""
    try:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
        while b"\r\n\r\n" not in answer and len(answer) < _LONGEST_PROXY_ANSWER:
            # Byte by byte: what follows belongs to TLS.
            byte = connection.recv(1)
            if not byte:
                break
            answer += byte
    except OSError as error:
        raise Lost(f"The proxy {proxy.host} did not connect to {target}: {error.strerror or error}.") from None
    first = answer.split(b"\r\n", 1)[0].decode("latin-1")
    status = first.split(" ")[1] if first.startswith("HTTP/") and " " in first else ""
    if status[:1] != "2" or b"\r\n\r\n" not in answer:
        said = first[:100] if first.isprintable() and first else "nothing that is HTTP"
        raise Lost(f"The proxy {proxy.host} refused to connect to {target}; it said: {said}.", again=status[:1] == "5")


def _wrap(connection: socket.socket, host: str, ticket: Ticket) -> socket.socket:
    import ssl

    # As bytes: see above. The handshake comes after `hold`, so that it can be cancelled.
    name: str = host.encode("ascii")  # type: ignore[assignment]  # typeshed knows only str
    wrapped = _context().wrap_socket(connection, server_hostname=name, do_handshake_on_connect=False)
    try:
        ticket.hold(wrapped)
        wrapped.do_handshake()
    except ssl.SSLCertVerificationError as error:
        wrapped.close()
        raise Lost(f"The certificate of {host} is not valid: {error.verify_message}.", again=False) from None
    except OSError as error:
        wrapped.close()
        raise Lost(f"{host} broke off before TLS was agreed: {error.strerror or error}.") from None
    except BaseException:
        wrapped.close()
        raise
    return wrapped


def _context() -> ssl.SSLContext:
    """With the certificates of the system, or of $SSL_CERT_FILE. Made once: it takes some milliseconds."""
    global _tls  # noqa: PLW0603 - a cache
    with _tls_lock:
        if _tls is None:
            import ssl

            _tls = ssl.create_default_context()
        return _tls
