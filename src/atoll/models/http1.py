"""HTTP/1.1 as a client of one kind of request speaks it: POST, and the whole answer.

The standard library has the same in http.client, whose import, mostly of what reads e-mail, would be a fifth of the
time from the start of a process to its first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import socket

MOST_BYTES = 64 * 1024 * 1024
_LONGEST_LINE = 65536
_MOST_LINES = 200
_PIECE = 1 << 18
_HEX = set("0123456789abcdefABCDEF")


class Answer(NamedTuple):
    """Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class NotHTTP(Exception):
    """What came is no HTTP."""


class Ended(Exception):
    """The connection ended, after so many bytes of a body, or before the answer began (-1)."""

    def __init__(self, got: int, of: int | None = None) -> None:
        super().__init__(got)
        self.got = got
        self.of = of


class TooLarge(Exception):
    """The answer has more bytes than one may have."""


class Reader:
    """What a socket sends, by lines and by counts."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        return not self._buffer

    def more(self) -> bool:
        """Wait for more; False at the end."""
        piece = self._connection.recv(_PIECE)
        self._buffer += piece
        return bool(piece)

    def line(self) -> str | None:
        """A line without its end, or None where there is no whole one any more. Raises: NotHTTP if it is too long."""
        looked = 0
        while (at := self._buffer.find(b"\n", looked)) < 0:
            looked = len(self._buffer)
            if looked > _LONGEST_LINE:
                raise NotHTTP
            if not self.more():
                return None
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        return line.removesuffix(b"\r").decode("latin-1")

    def take(self, count: int, into: bytearray) -> bool:
        """Move so many bytes; False when it ended before, with those there were."""
        while True:
            piece = self._buffer[:count]
            into += piece
            del self._buffer[: len(piece)]
            count -= len(piece)
            if not count:
                return True
            if not self.more():
                return False

    def drain(self, into: bytearray) -> bool:
        """Move what there is, or what comes next; False at the end."""
        if not self._buffer and not self.more():
            return False
        into += self._buffer
        self._buffer.clear()
        return True


def send(connection: socket.socket, target: str, headers: dict[str, str], body: bytes) -> None:
    """Send a request. What is in it has been checked for line breaks by whoever made it."""
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1")
    if len(body) > _PIECE:
        connection.sendall(head)
        connection.sendall(body)
    else:
        connection.sendall(head + body)


def receive(reader: Reader) -> tuple[Answer, bool]:
    """The answer, and whether the connection can be used for another.

    Raises: NotHTTP, Ended, TooLarge, OSError.
    """
    status, newer = _status(reader)
    headers = _headers(reader)
    while 100 <= status < 200:
        status, newer = _status(reader)
        headers = _headers(reader)
    body = bytearray()
    length = headers.get("content-length")
    coding = headers.get("transfer-encoding", "").strip().lower()
    bounded = True
    if status in (204, 304):
        pass
    elif coding:
        if coding != "chunked":
            raise NotHTTP
        _chunks(reader, body)
    elif length is not None:
        _counted(reader, length, body)
    else:
        bounded = False
        _to_the_end(reader, body)
    closes = "close" in headers.get("connection", "").lower()
    # What comes unasked after an answer would be taken for the next one.
    return Answer(status, headers, bytes(body)), newer and bounded and not closes and reader.is_empty


def _status(reader: Reader) -> tuple[int, bool]:
    """The status, and whether connections last."""
    if reader.is_empty and not reader.more():
        raise Ended(-1)
    line = reader.line()
    if line is None:
        raise NotHTTP
    version, _, rest = line.partition(" ")
    code = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or len(code) != 3 or not (code.isascii() and code.isdigit()):
        raise NotHTTP
    if rest[3:4] not in ("", " ") or code < "100":
        raise NotHTTP
    return int(code), version == "HTTP/1.1"


def _headers(reader: Reader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MOST_LINES):
        line = reader.line()
        if line is None:
            raise NotHTTP
        if not line:
            return headers
        name, colon, value = line.partition(":")
        key = name.lower()
        # One that goes on in the next line, or two lengths: servers and proxies disagree about what they mean.
        if not colon or name != name.strip() or not name:
            raise NotHTTP
        if key == "content-length" and headers.get(key, value.strip()) != value.strip():
            raise NotHTTP
        headers[key] = value.strip()
    raise NotHTTP


def _counted(reader: Reader, length: str, body: bytearray) -> None:
    if not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise NotHTTP
    if int(length) > MOST_BYTES:
        raise TooLarge
    if not reader.take(int(length), body):
        raise Ended(len(body), int(length))


def _chunks(reader: Reader, body: bytearray) -> None:
    while True:
        line = reader.line()
        size = (line or "").partition(";")[0].strip()
        if line is None or not size or len(size) > 12 or not set(size) <= _HEX:
            raise Ended(len(body))
        count = int(size, 16)
        if len(body) + count > MOST_BYTES:
            raise TooLarge
        if not count:
            _headers(reader)  # of the end, which nobody needs
            return
        if not reader.take(count, body) or reader.line() != "":
            raise Ended(len(body))


def _to_the_end(reader: Reader, body: bytearray) -> None:
    while reader.drain(body):
        if len(body) > MOST_BYTES:
            raise TooLarge
