"""Frames: a header of ten bytes, then a payload. docs/reference/protocol.md tells what they mean.

Both sides use this module. The decoder trusts nothing: a frame that is too long or of no known kind
ends the stream with `BadFrame`, before its payload is kept.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, NamedTuple, Union

VERSION = 1
HEADER = struct.Struct("<IIBB")
MAX_PAYLOAD = 1 << 20
MAX_OPEN = 13 << 20  # to a guest: the two megabytes of arguments that a kernel takes, each byte as an escape of JSON
WINDOW = 1 << 20
DATA_SIZE = 1 << 16

HELLO, OPEN, DATA, EOF, EVENT, CALL, CREDIT, END, CLOSE = range(1, 10)
STDIN, STDOUT, STDERR, BULK = 0, 1, 2, 3
QUEUED, STARTED = b'{"queued":true}', b'{"started":true}'
"""The EVENTs of a request to a context that is busy: it waits for its turn, and its turn has come."""

_KINDS = frozenset(range(HELLO, CLOSE + 1))
_HEADER_SIZE = HEADER.size
_unpack = HEADER.unpack_from
_CREDIT = struct.Struct("<I")
_from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class BadFrame(Exception):
    """The peer sent something that no honest peer sends."""


class Frame(NamedTuple):
    channel: int
    kind: int
    stream: int
    payload: bytes

    def json(self) -> Dict[str, Any]:
        """The payload as a JSON object.

        Raises:
            BadFrame: it is not one.
        """
        try:
            value = _from_json(self.payload.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BadFrame("a frame of kind %d holds no JSON" % self.kind) from error
        if not isinstance(value, dict):
            raise BadFrame("a frame of kind %d holds no JSON object" % self.kind)
        return value

    def credit(self) -> int:
        if len(self.payload) != _CREDIT.size:
            raise BadFrame("a credit frame of the wrong size")
        return int(_CREDIT.unpack(self.payload)[0])


def encode(channel: int, kind: int, payload: Union[bytes, bytearray, memoryview] = b"", stream: int = 0) -> bytes:
    if len(payload) > (MAX_OPEN if kind == OPEN else MAX_PAYLOAD):
        raise ValueError("a payload of %d bytes is over the limit" % len(payload))
    return HEADER.pack(len(payload), channel, kind, stream) + payload


def encode_json(channel: int, kind: int, value: Dict[str, Any]) -> bytes:
    """Lone surrogates, which stand for bytes that are not UTF-8, pass as escapes."""
    return encode(channel, kind, _to_json(value).encode("ascii"))


def encode_credit(channel: int, count: int) -> bytes:
    return encode(channel, CREDIT, _CREDIT.pack(count))


class Decoder:
    """Cuts a byte stream into frames. After `BadFrame` the stream is of no more use.

    `max_open` is for a guest: the most that an OPEN of its client, and of nobody else, may hold.
    """

    def __init__(self, max_open: int = MAX_PAYLOAD) -> None:
        self._rest = b""
        self._max_open = max_open

    @property
    def pending(self) -> bool:
        """Whether a part of a frame has come."""
        return bool(self._rest)

    def feed(self, data: bytes) -> List[Frame]:
        """The frames that `data` completes.

        Raises:
            BadFrame: a header announces an unknown kind or too long a payload.
        """
        if self._rest:
            data = self._rest + data
        frames = []
        start, end = 0, len(data)
        while end - start >= _HEADER_SIZE:
            length, channel, kind, stream = _unpack(data, start)
            if (length > MAX_PAYLOAD and (kind != OPEN or length > self._max_open)) or kind not in _KINDS:
                raise BadFrame("a frame of kind %d announces %d bytes" % (kind, length))
            body = start + _HEADER_SIZE
            if end < body + length:
                break
            start = body + length
            frames.append(Frame(channel, kind, stream, data[body:start]))
        self._rest = data[start:]
        return frames
