"""Files with holes: which parts of one hold anything but zeros, found so that only its content decides."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from . import Damaged

BLOCK = 4096
CHUNK = 1 << 20
_ZEROS = bytes(BLOCK)

Extents = list[tuple[int, int]]
"""Offset and length of what is not zeros, ascending. All but the end of the file lies on blocks."""


def extents(fd: int, size: int) -> Extents:
    """Those of a file. The file system's own holes are skipped, all else is read."""
    found: Extents = []
    for start, end in _data(fd, size):
        position = start
        while position < end:
            chunk = os.pread(fd, min(CHUNK, end - position), position)
            if not chunk:
                return found
            add(found, position, chunk)
            position += len(chunk)
    return found


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        # Another file system may have smaller blocks.
        position = min(end + -end % BLOCK, size)
        yield start - start % BLOCK, position


def add(found: Extents, position: int, chunk: bytes) -> None:
    """Note what a piece of the file holds. It begins on a block."""
    if _ZEROS not in chunk and any(chunk[-(len(chunk) % BLOCK or BLOCK) :]):
        _extend(found, position, len(chunk))
        return
    for offset in range(0, len(chunk), BLOCK):
        block = chunk[offset : offset + BLOCK]
        if block != _ZEROS[: len(block)]:
            _extend(found, position + offset, len(block))


def _extend(found: Extents, start: int, length: int) -> None:
    if found and sum(found[-1]) >= start:
        begin = found[-1][0]
        found[-1] = (begin, start + length - begin)
    else:
        found.append((start, length))


def encode_map(parts: Extents) -> bytes:
    """The map that goes before the content, as GNU tar has it in its format 1.0, but for the padding."""
    return b"%d\n" % len(parts) + b"".join(b"%d\n%d\n" % part for part in parts)


def check(parts: Extents, size: int) -> None:
    """Raises Damaged: they are none of a file of this size."""
    last = -1
    for start, length in parts:
        if start <= last or start % BLOCK or length <= 0 or start + length > size:
            raise Damaged("a file has a map of its content that cannot be")
        if length % BLOCK and start + length != size:
            raise Damaged("a file has a map of its content that cannot be")
        last = start + length
