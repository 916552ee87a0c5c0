"""What the messages of an Arrow stream claim, before anything is made of them.

A hostile stream can name the same bytes many times over, so that little of it stands for much. pyarrow has verified
that the flatbuffers read here are well-formed; no claim in them is checked by it.
"""

from __future__ import annotations

import struct
from typing import Any, Iterator, Union

from .plain import Unfit

_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
_FIELD_COST = 16  # less than the least that a field takes
_SLACK = 1 << 16


def check(pyarrow: Any, data: Union[bytes, bytearray, memoryview]) -> None:
    """Refuse what no library writes by itself: compression, foreign byte order, growing dictionaries, shared bytes.

    Raises:
        Unfit: it has such a message.
    """
    for message in pyarrow.ipc.MessageReader.open_stream(pyarrow.py_buffer(data)):
        body = message.body
        _check_message(bytes(message.metadata), 0 if body is None else body.size)


def _check_message(metadata: bytes, body: int) -> None:
    message = _follow(metadata, 0)
    kind, header = _member(metadata, message, 1), _member(metadata, message, 2)
    if not kind or not header:
        return
    content = _follow(metadata, header)
    if metadata[kind] == _SCHEMA:
        _check_schema(metadata, content)
    elif metadata[kind] == _DICTIONARY:
        grows = _member(metadata, content, 2)
        if grows and metadata[grows]:
            raise Unfit("has a dictionary that grows on the way")
        batch = _member(metadata, content, 1)
        if batch:
            _check_batch(metadata, _follow(metadata, batch), body)
    elif metadata[kind] == _RECORDS:
        _check_batch(metadata, content, body)


def _check_batch(metadata: bytes, batch: int, body: int) -> None:
    """A compressed body says itself how much it grows to, and one part of it may not be the content of many columns."""
    if _member(metadata, batch, 3):
        raise Unfit("is compressed")
    buffers = _member(metadata, batch, 2)
    if not buffers:
        return
    at = _follow(metadata, buffers)
    claimed = 0
    for index in range(_number(metadata, at)):
        length = struct.unpack_from("<q", metadata, at + 4 + 16 * index + 8)[0]
        if length < 0:
            raise Unfit("has a column of a negative size")
        claimed += length
    if claimed > body:
        raise Unfit("has %d bytes that stand for %d" % (body, claimed))


def _check_schema(metadata: bytes, schema: int) -> None:
    order = _member(metadata, schema, 0)
    if order and struct.unpack_from("<h", metadata, order)[0] != 0:
        raise Unfit("has the byte order of another machine")
    limit = 4 * len(metadata) + _SLACK
    left = limit - _texts(metadata, schema, 2)
    waiting = list(_vector(metadata, _member(metadata, schema, 1)))
    while waiting and left > 0:
        field = waiting.pop()
        name = _member(metadata, field, 0)
        left -= _FIELD_COST + (_number(metadata, _follow(metadata, name)) if name else 0)
        left -= _texts(metadata, field, 6)
        children = _member(metadata, field, 5)
        left -= _number(metadata, _follow(metadata, children)) if children else 0
        if left > 0:
            waiting.extend(_vector(metadata, children))
    if left <= 0:
        raise Unfit("has a schema that repeats itself")


def _texts(metadata: bytes, table: int, member: int) -> int:
    """How long the keys and values are that a field or a schema carries along."""
    total = 0
    for pair in _vector(metadata, _member(metadata, table, member)):
        total += _FIELD_COST
        for part in (0, 1):
            at = _member(metadata, pair, part)
            total += _number(metadata, _follow(metadata, at)) if at else 0
    return total


def _vector(data: bytes, at: int) -> Iterator[int]:
    """The tables that a member lists."""
    if at:
        start = _follow(data, at)
        for index in range(_number(data, start)):
            yield _follow(data, start + 4 + 4 * index)


def _number(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _follow(data: bytes, at: int) -> int:
    return at + _number(data, at)


def _member(data: bytes, table: int, number: int) -> int:
    """Where a table has its member, or 0 if it is left out."""
    members = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, members)[0]:
        return 0
    offset = struct.unpack_from("<H", data, members + 4 + 2 * number)[0]
    return table + int(offset) if offset else 0
