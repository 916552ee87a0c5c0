"""The memory of an instance, seen from outside. Every address and length comes from hostile code."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable

from . import wasm_abi as abi

_BIGGEST = 1 << 30
_MOST_PIECES = 1024


class Memory:
    """Bounds-checked reading and writing.

    Args:
        place: gives the address and the size that it has now. It may grow whenever the instance runs.
    """

    def __init__(self, place: Callable[[], tuple[int, int]]) -> None:
        self._place = place
        self._address = self._size = 0
        self._view = memoryview(b"")
        self._renew()

    def _renew(self) -> None:
        address, size = self._place()
        if (address, size) != (self._address, self._size):
            self._address, self._size = address, size
            self._view = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")

    def view(self, start: int, length: int) -> memoryview:
        """So many bytes, as they are. Raises OSError where there are none."""
        end = start + length
        if end > self._size:
            self._renew()
            if end > self._size:
                raise abi.failure(errno.EFAULT)
        return self._view[start:end]

    def read(self, start: int, length: int) -> bytes:
        return bytes(self.view(start, length))

    def write(self, start: int, data: bytes) -> None:
        self.view(start, len(data))[:] = data

    def put_size(self, at: int, value: int) -> None:
        self.write(at, abi.U32.pack(value))

    def put_long(self, at: int, value: int) -> None:
        self.write(at, abi.U64.pack(value))

    def vectors(self, start: int, count: int) -> list[memoryview]:
        """The pieces that a list of addresses and lengths names; all of them together are no more than a gigabyte."""
        if count > _MOST_PIECES:
            raise abi.failure(errno.EINVAL)
        table = self.read(start, count * abi.IOVEC.size)
        pieces = [self.view(*entry) for entry in abi.IOVEC.iter_unpack(table)]
        if sum(len(piece) for piece in pieces) > _BIGGEST:
            raise abi.failure(errno.EINVAL)
        return pieces

    def snapshot(self) -> bytes:
        """All of it."""
        self._renew()
        return bytes(self._view)

    @property
    def size(self) -> int:
        self._renew()
        return self._size
