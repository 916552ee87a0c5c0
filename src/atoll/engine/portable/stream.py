"""Reading a file that may be hostile, from its beginning to its end, never more of it than is allowed."""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Callable

from . import Damaged, headers
from .headers import BLOCK

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"


class Source:
    """A file's bytes, unpacked if it is packed.

    Args:
        limit: how many bytes to give at most, once unpacked.
    """

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._left = limit
        self._limit = limit
        self._ready = os.read(fd, _CHUNK)
        self._packed = b""
        self._unpack = None
        if self._ready.startswith(_GZIP):
            self._unpack = zlib.decompressobj(31)
            self._packed, self._ready = self._ready, b""

    def read(self, size: int) -> bytes:
        """So many bytes, and no fewer.

        Raises:
            Damaged: there are not as many, or they are over the limit.
        """
        self._left -= size
        if self._left < 0:
            raise Damaged(f"it holds more than the limit of {self._limit} bytes; raise it if you trust the file")
        parts = []
        while size:
            if not self._ready and not self._fill():
                raise Damaged("it ends too early")
            piece, self._ready = self._ready[:size], self._ready[size:]
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    def at_end(self) -> bool:
        return not self._ready and not self._fill()

    def _fill(self) -> bool:
        while not self._ready:
            if self._unpack is None:
                self._ready = os.read(self._fd, _CHUNK)
                return bool(self._ready)
            if self._unpack.eof:
                if self._packed or self._unpack.unused_data or os.read(self._fd, 1):
                    raise Damaged("something follows after its end")
                return False
            self._packed = self._packed or os.read(self._fd, _CHUNK)
            if not self._packed:
                raise Damaged("it ends too early")
            try:
                self._ready = self._unpack.decompress(self._packed, _CHUNK)
            except zlib.error as error:
                raise Damaged(f"it cannot be unpacked: {error}") from None
            self._packed = self._unpack.unconsumed_tail
        return True

    def member(self) -> tuple[str, int] | None:
        """Name and size of the next member; None at the end of the tar. Raises Damaged."""
        block = self.read(BLOCK)
        if block == bytes(BLOCK):
            if self.read(BLOCK) != block or not self.at_end():
                raise Damaged("something follows after its end")
            return None
        records, raw = _headers(block, self.read)
        return headers.decode_member(records, raw)

    def skip_padding(self, size: int) -> None:
        if any(self.read(-size % BLOCK)):
            raise Damaged("there is something between two members")


class Part:
    """A layer that is read: paths, each followed by its content."""

    def read(self, size: int) -> bytes:
        """So many bytes. Raises Damaged."""
        raise NotImplementedError

    def is_over(self) -> bool:
        """Whether nothing is left to read."""
        raise NotImplementedError

    def entry(self) -> headers.Entry | None:
        """The next path of a layer; None at its end. Raises Damaged."""
        block = self.read(BLOCK)
        if block == bytes(BLOCK):
            if self.read(BLOCK) != block or not self.is_over():
                raise Damaged("something follows after the end of a layer")
            return None
        return headers.decode(*_headers(block, self.read))


class Member(Part):
    """One of a file, and its digest."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._left = size
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise Damaged("a layer ends too early")
        data = self._source.read(size)
        self._hash.update(data)
        return data

    def is_over(self) -> bool:
        return not self._left

    def drain(self) -> None:
        """Read what is left."""
        while self._left:
            self.read(min(_CHUNK, self._left))

    def digest(self) -> str:
        return self._hash.hexdigest()


class Pipe(Part):
    """One that somebody writes at the same time."""

    def __init__(self, fd: int) -> None:
        self._source = Source(fd, sys.maxsize)

    def read(self, size: int) -> bytes:
        return self._source.read(size)

    def is_over(self) -> bool:
        return self._source.at_end()


def _headers(block: bytes, read: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    """The records of an extended header, and all of it with the ordinary one that follows."""
    size = headers.records_size(block)
    records = read(size)
    rest = read(-size % BLOCK + BLOCK)
    return records, block + records + rest
