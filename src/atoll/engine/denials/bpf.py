"""The kernel's BPF machine: programs from instructions, maps, and rings that programs write to."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator

from .. import kernel

HASH, PERCPU_ARRAY, HASH_OF_MAPS, RING = 1, 6, 13, 27
_RAW_TRACEPOINT = 17
_MAP_CREATE, _LOOKUP, _UPDATE, _DELETE, _NEXT_KEY, _LOAD = 0, 1, 2, 3, 4, 5
_MAP_BY_ID, _INFO, _OPEN_TRACEPOINT, _LINK_BY_ID = 14, 15, 17, 30
_LOG = 1 << 16
_MOST_KEYS = 1 << 16

# Operations of instructions.
LOAD, STORE, STORE_HALF, LOAD_BYTE = 0x79, 0x7B, 0x63, 0x71
SET, MOVE, ADD, ADD_NUMBER, SHIFT_LEFT, SHIFT_RIGHT = 0xB7, 0xBF, 0x0F, 0x07, 0x67, 0xC7
STORE_NUMBER, ATOMIC_ADD, LOAD_MAP = 0x7A, 0xDB, 0x18
JUMP, EQUAL, UNEQUAL, ABOVE, LESS, SAME, NOT_BELOW = 0x05, 0x15, 0x55, 0x25, 0xC5, 0x1D, 0x3D
NOT_MORE = 0xD5
CALL, EXIT = 0x85, 0x95
R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FRAME = range(11)


class Code:
    """Instructions in the making. Jumps go forward, to labels that are placed later."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int, int]] = []
        self._jumps: list[tuple[int, str]] = []
        self._labels: dict[str, int] = {}

    def add(self, operation: int, to: int = 0, source: int = 0, offset: int = 0, number: int = 0) -> None:
        self._code.append((operation, to, source, offset, number))

    def jump(self, label: str, operation: int = JUMP, to: int = 0, number: int = 0, source: int = 0) -> None:
        self._jumps.append((len(self._code), label))
        self.add(operation, to, source, 0, number)

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def load_map(self, to: int, fd: int) -> None:
        self.add(LOAD_MAP, to, 1, 0, fd)
        self.add(0)

    def call(self, helper: int) -> None:
        self.add(CALL, number=helper)

    def bytes(self) -> bytes:
        for place, label in self._jumps:
            operation, to, source, _, number = self._code[place]
            self._code[place] = operation, to, source, self._labels[label] - place - 1, number
        return b"".join(
            struct.pack("<BBhi", operation, to | source << 4, offset, number)
            for operation, to, source, offset, number in self._code
        )


def _bpf(command: int, attributes: bytes) -> int:
    """Raises OSError."""
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    return kernel.syscall("bpf", command, buffer, len(buffer))


def make_map(kind: int, key: int, value: int, entries: int, name: bytes, inner: int = 0) -> int:
    """A descriptor. `inner` is a map as those that a map of maps will hold."""
    return _bpf(_MAP_CREATE, struct.pack("<IIIIIII16s", kind, key, value, entries, 0, inner, 0, name))


def _with_key(command: int, fd: int, key: int, value: bytes = b"") -> bytes:
    where = ctypes.create_string_buffer(struct.pack("<I", key), 4)
    what = ctypes.create_string_buffer(value, len(value))
    place = ctypes.addressof(what) if value else 0
    _bpf(command, struct.pack("<IIQQQ", fd, 0, ctypes.addressof(where), place, 0))
    return what.raw


def update(fd: int, key: int, value: bytes) -> None:
    """Raises OSError; as do the others on maps."""
    _with_key(_UPDATE, fd, key, value)


def lookup(fd: int, key: int, size: int) -> bytes:
    return _with_key(_LOOKUP, fd, key, bytes(size))


def keys(fd: int) -> list[int]:
    """All that a map has; while others change it, perhaps not all."""
    found: list[int] = []
    after, next_ = ctypes.create_string_buffer(4), ctypes.create_string_buffer(4)
    try:
        while len(found) < _MOST_KEYS:
            here = ctypes.addressof(after) if found else 0
            _bpf(_NEXT_KEY, struct.pack("<IIQQ", fd, 0, here, ctypes.addressof(next_)))
            after.raw = next_.raw
            found.append(int.from_bytes(next_.raw, "little"))
    except FileNotFoundError:
        pass
    return found


def delete(fd: int, key: int) -> None:
    _with_key(_DELETE, fd, key)


def load(code: bytes, name: bytes) -> int:
    """A program for a raw tracepoint. Raises OSError, with the end of what the kernel says about it."""
    instructions, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    head = struct.pack("<IIQQ", _RAW_TRACEPOINT, len(code) // 8, *map(ctypes.addressof, (instructions, licence)))
    tail = struct.pack("<II16s", 0, 0, name)
    try:
        return _bpf(_LOAD, head + struct.pack("<IIQ", 0, 0, 0) + tail)
    except OSError as error:
        if error.errno not in (13, 22):
            raise
        log = ctypes.create_string_buffer(_LOG)
        try:
            return _bpf(_LOAD, head + struct.pack("<IIQ", 1, _LOG, ctypes.addressof(log)) + tail)
        except OSError:
            raise OSError(error.errno, f"{error.strerror}: {log.value.decode(errors='replace')[-2000:]}") from None


def attach(program: int, tracepoint: bytes) -> int:
    """A link: the program runs at a raw tracepoint for as long as anybody holds it."""
    name = ctypes.create_string_buffer(tracepoint)
    return _bpf(_OPEN_TRACEPOINT, struct.pack("<QI", ctypes.addressof(name), program))


def id_of(fd: int) -> int:
    """The number by which root finds a map or link again."""
    info = ctypes.create_string_buffer(256)
    _bpf(_INFO, struct.pack("<IIQ", fd, len(info), ctypes.addressof(info)))
    return int(struct.unpack_from("<I", info.raw, 4)[0])


def name_of(map_fd: int) -> bytes:
    info = ctypes.create_string_buffer(256)
    _bpf(_INFO, struct.pack("<IIQ", map_fd, len(info), ctypes.addressof(info)))
    return info.raw[24:40].rstrip(b"\0")


def map_by_id(number: int) -> int:
    return _bpf(_MAP_BY_ID, struct.pack("<I", number))


def link_by_id(number: int) -> int:
    return _bpf(_LINK_BY_ID, struct.pack("<I", number))


class Ring:
    """What a program writes and one process reads. What does not fit is the program's to count."""

    def __init__(self, size: int, name: bytes) -> None:
        self._size = size
        self.fd = make_map(RING, 0, 0, size, name)
        try:
            page = mmap.PAGESIZE
            self._read = mmap.mmap(self.fd, page)
            self._data = mmap.mmap(self.fd, page + 2 * size, prot=mmap.PROT_READ, offset=page)
        except BaseException:
            os.close(self.fd)
            raise
        # As words: the kernel writes them meanwhile, and they must be read and written at once.
        self._taken = memoryview(self._read).cast("Q")
        self._given = memoryview(self._data).cast("Q")
        self._heads = memoryview(self._data).cast("I")

    def records(self, most: int) -> Iterator[bytes]:
        """Those that are there, and at most so many."""
        for _ in range(most):
            position = self._taken[0]
            if position >= self._given[0]:
                return
            place = mmap.PAGESIZE + (position & (self._size - 1))
            head = self._heads[place // 4]
            if head >> 31:  # it is being written
                return
            length = head & 0x3FFFFFFF
            if not head >> 30 & 1:
                yield self._data[place + 8 : place + 8 + length]
            self._taken[0] = position + (length + 8 + 7 & ~7)

    def close(self) -> None:
        for view in (self._taken, self._given, self._heads):
            view.release()
        self._read.close()
        self._data.close()
        os.close(self.fd)
