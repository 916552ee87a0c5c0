"""Large buffers of pickled values, in the file beside the pickles: written without a copy, and mapped when read."""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Sequence, Tuple

from . import borrowed
from .frozenfile import Damaged, Place

LEAST = 64 << 10
"""Smaller ones are part of their pickle: a page for each would cost more than the copy."""

_PAGE = 4096
_CHUNK = 64 << 20
# The kernel gives a process about 65,000 mappings; what is beyond is read.
_MOST_MAPPED = 8192
_PROT_READ, _PROT_WRITE, _MAP_PRIVATE, _MAP_NORESERVE = 1, 2, 2, 0x4000


class BufferWriter:
    """Puts the buffers of one pickle after the other into a file; `places` says where they are.

    Memory that two values share is written once, and shared again by those who read it. All of it is held until the
    end, so that no other buffer can come to lie where one was.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.places: List[Place] = []
        self._file = file
        self._known: Dict[Tuple[int, int], int] = {}
        self._held: List[memoryview] = []
        self._taken: List[memoryview] = []
        self._before = 0

    def begin(self) -> None:
        """A pickle follows."""
        self._taken = []
        self._before = len(self.places)

    def take(self, buffer: Any) -> bool:
        """For a pickler: whether the buffer belongs into the pickle itself."""
        raw: memoryview = buffer.raw()
        if raw.nbytes < LEAST:
            return True
        self._taken.append(raw)
        return False

    def write(self, alive: Callable[[], None]) -> List[Tuple[int, bool]]:
        """Write what the pickle needs; `alive` is called now and then. As `Span.buffers`. Raises OSError."""
        return [(self._number(raw, alive), raw.readonly) for raw in self._taken]

    def undo(self) -> None:
        """Forget what was written since `begin`; who calls this cuts the file off there."""
        del self.places[self._before :]
        self._known = {key: number for key, number in self._known.items() if number < self._before}

    def _number(self, raw: memoryview, alive: Callable[[], None]) -> int:
        key = (_identity(raw), raw.nbytes)
        number = self._known.get(key)
        if number is None:
            at = -(-self._file.tell() // _PAGE) * _PAGE
            self._file.seek(at)
            for begin in range(0, raw.nbytes, _CHUNK):
                self._file.write(raw[begin : begin + _CHUNK])
                alive()
            self._held.append(raw)
            number = self._known[key] = len(self.places)
            self.places.append(Place(at, raw.nbytes))
        return number


def _identity(raw: memoryview) -> int:
    """The address of its memory; or, where nobody tells, something that no other memory has."""
    try:
        ctypes = borrowed.standard("ctypes")
        return int(ctypes.addressof(ctypes.c_char.from_buffer(raw)))
    except (ImportError, TypeError, ValueError):
        return -id(raw.obj)  # one that cannot be written to


class BufferReader:
    """Gives buffers of a file that is open, each mapped when it is first asked for, and for good."""

    def __init__(self, file: BinaryIO, places: Sequence[Place]) -> None:
        self._file = file
        self._places = places
        self._views: Dict[int, memoryview] = {}
        self._size = os.fstat(file.fileno()).st_size
        self._mapper = _Mapper.find() if places else None

    def get(self, wanted: Sequence[Tuple[int, bool]]) -> List[memoryview]:
        """As `Span.buffers` names them. Raises Damaged."""
        views = [self._view(number) for number, _ in wanted]
        return [view.toreadonly() if fixed else view for view, (_, fixed) in zip(views, wanted)]

    def _view(self, number: int) -> memoryview:
        if number not in self._views:
            place = self._places[number]
            if place.at < 0 or place.size <= 0 or place.at + place.size > self._size:
                raise Damaged("It ends before a variable does.")  # memory behind the end of a file kills who looks
            mapped = None
            if self._mapper is not None and len(self._views) < _MOST_MAPPED:
                mapped = self._mapper.map(self._file.fileno(), place)
            self._views[number] = self._read(place) if mapped is None else mapped
        return self._views[number]

    def _read(self, place: Place) -> memoryview:
        content = memoryview(bytearray(place.size))
        self._file.seek(place.at)
        if self._file.readinto(content) != place.size:  # type: ignore[attr-defined]  # it is a buffered file
            raise Damaged("It ends within a variable.")
        return content


class _Mapper:
    """Maps a part of a file so that what is written to it is this process's own. It needs no descriptor afterwards,
    which those of the module `mmap` each do."""

    def __init__(self, ctypes: Any, weakref: Any) -> None:
        self._ctypes = ctypes
        self._weakref = weakref
        library = ctypes.CDLL(None)
        size, pointer, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        self._map = library.mmap
        self._map.restype = pointer
        self._map.argtypes = [pointer, size, number, number, number, ctypes.c_long]
        self._unmap = library.munmap
        self._unmap.argtypes = [pointer, size]

    @classmethod
    def find(cls) -> Optional[_Mapper]:
        """None where there is no such thing, or another than is known here."""
        if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
            return None
        try:
            return cls(borrowed.standard("ctypes"), borrowed.standard("weakref"))
        except (ImportError, OSError, AttributeError):
            return None

    def map(self, fd: int, place: Place) -> Optional[memoryview]:
        """None where the kernel will not. It is unmapped when nobody has the memory any more."""
        flags = _MAP_PRIVATE | _MAP_NORESERVE
        address = self._map(None, place.size, _PROT_READ | _PROT_WRITE, flags, fd, place.at)
        if address is None or address == self._ctypes.c_void_p(-1).value:
            return None
        content = (self._ctypes.c_ubyte * place.size).from_address(address)
        ending = self._weakref.finalize(content, self._unmap, address, place.size)
        ending.atexit = False
        return memoryview(content).cast("B")
