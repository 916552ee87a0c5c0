"""HTTP/1.1, as much of it as a server of JSON needs, and strictly: what could be read in two ways is refused."""

from __future__ import annotations

import re
import select
import socket
from time import monotonic
from typing import NamedTuple

MAX_HEAD = 32 << 10
MAX_FIELDS = 100
HEAD_TIME = 10.0
"""Seconds from the first byte of a head to its last."""

BODY_TIME = 60.0
SEND_TIME = 30.0
_LINGER = 1.0
_LINGER_READS = 64

_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]{1,4096}) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_REPEATABLE = frozenset(("accept", "accept-encoding", "accept-language", "cache-control", "connection", "cookie", "via",
                         "x-forwarded-for", "forwarded"))  # fmt: skip
REASONS = {
    200: "OK", 202: "Accepted", 204: "No Content", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable", 408: "Request Timeout", 411: "Length Required",
    413: "Content Too Large", 415: "Unsupported Media Type", 421: "Misdirected Request",
    431: "Request Header Fields Too Large", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip


class Head(NamedTuple):
    """The head of a request. Names of fields are in small letters; each is there once."""

    method: str
    path: str
    fields: dict[str, str]
    keep: bool
    chunks: bool = True
    """Whether the client can take an answer whose length is not known; those of HTTP/1.0 cannot."""


class Broken(Exception):
    """The request cannot be served, and the connection ends."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Gone(Exception):
    """The peer has closed the connection, or takes nothing."""


def parse_head(data: bytes) -> Head:
    """Raises Broken. `data` is all before the empty line."""
    line, *rest = data.split(b"\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        raise Broken(400, "The request line is not one of HTTP/1.1.")
    if len(rest) > MAX_FIELDS:
        raise Broken(431, f"There are more than {MAX_FIELDS} header fields.")
    fields: dict[str, str] = {}
    for each in rest:
        field = _FIELD.fullmatch(each)
        if field is None:
            raise Broken(400, "A header field is malformed.")
        name, value = field[1].decode("ascii").lower(), field[2].decode("latin-1").strip(" \t")
        if name in fields:
            if name not in _REPEATABLE:
                raise Broken(400, f"The header field {name} is there twice.")
            value = f"{fields[name]}, {value}"
        fields[name] = value
    path = match[2].decode("ascii").partition("?")[0]
    tokens = {token.strip().lower() for token in fields.get("connection", "").split(",")}
    keep = "close" not in tokens if match[3] == b"1" else "keep-alive" in tokens
    return Head(match[1].decode("ascii"), path, fields, keep, match[3] == b"1")


def body_length(head: Head, most: int) -> int:
    """Raises Broken for a body whose end is not told in one way, or that is too long."""
    if "transfer-encoding" in head.fields:
        raise Broken(411, "Send the body with Content-Length, not with a transfer encoding.")
    told = head.fields.get("content-length")
    if told is None:
        if head.method == "POST":
            raise Broken(411, "There is no Content-Length.")
        return 0
    if re.fullmatch(r"[0-9]{1,15}", told) is None:
        raise Broken(400, "Content-Length is no number.")
    if int(told) > most:
        raise Broken(413, f"The body has more than {most} bytes.")
    return int(told)


class Wire:
    """One connection. Only its thread uses it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._buffer = bytearray()

    def read_head(self, idle: float) -> Head | None:
        """The next head; None when the peer has no more. Raises Broken, Gone."""
        if not self._buffer and not self._fill(monotonic() + idle):
            return None
        until = monotonic() + HEAD_TIME
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD:
                raise Broken(431, f"The head has more than {MAX_HEAD} bytes.")
            try:
                if not self._fill(until):
                    raise Gone
            except TimeoutError:
                raise Broken(408, "The head took too long.") from None
        if end > MAX_HEAD:
            raise Broken(431, f"The head has more than {MAX_HEAD} bytes.")
        data = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return parse_head(data)

    def read_body(self, head: Head, size: int) -> bytes:
        """Raises Broken, Gone."""
        if size and head.fields.get("expect", "").lower() == "100-continue" and len(self._buffer) < size:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        until = monotonic() + BODY_TIME
        while len(self._buffer) < size:
            try:
                if not self._fill(until):
                    raise Gone
            except TimeoutError:
                raise Broken(408, "The body took too long.") from None
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    def _fill(self, until: float) -> bool:
        """Read some more; whether there was more. Raises TimeoutError, and Gone for a connection that broke."""
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                self._wait(select.POLLIN, until)
                continue
            except OSError:
                raise Gone from None
            self._buffer += data
            return bool(data)

    def send(self, data: bytes) -> None:
        """All of it. Raises Gone."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.sock.send(rest) :]
            except BlockingIOError:
                try:
                    self._wait(select.POLLOUT, monotonic() + SEND_TIME)
                except TimeoutError:
                    raise Gone from None
            except OSError:
                raise Gone from None

    def _wait(self, event: int, until: float) -> None:
        poller = select.poll()
        poller.register(self.sock, event)
        if not poller.poll(max(until - monotonic(), 0.0) * 1000):
            raise TimeoutError

    def linger(self) -> None:
        """Read on for a moment: who still sends would otherwise see a reset, and not what we have said."""
        until = monotonic() + _LINGER
        try:
            self.sock.shutdown(socket.SHUT_WR)
            for _ in range(_LINGER_READS):
                self._buffer.clear()
                if not self._fill(until):
                    return
        except (OSError, Gone):
            pass

    def close(self) -> None:
        self.sock.close()


def response(status: int, body: bytes = b"", fields: dict[str, str] | None = None, *, keep: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS[status]}"]
    if status != 204:
        lines.append(f"Content-Length: {len(body)}")
    if body:
        lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in (fields or {}).items()]
    lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff"]
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
