"""The program that the kernel runs whenever a system call ends: it tells of those that were denied to a sandbox.

Pure: it makes instructions and takes records apart. Whether a call failed so is looked at first, since that is all
that the rest of the host ever pays for. Then whose it is, by the user's id and the namespace of its processes. Then
it writes down what was named, and the directory that a relative name is relative to, up to where that is mounted.

What a process names, it could change while the kernel looks; the record then has what it pretends.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import NamedTuple

from .bpf import (
    ABOVE,
    ADD,
    ADD_NUMBER,
    ATOMIC_ADD,
    EQUAL,
    EXIT,
    FRAME,
    LESS,
    LOAD,
    LOAD_BYTE,
    MOVE,
    NOT_BELOW,
    NOT_MORE,
    R0,
    R1,
    R2,
    R3,
    R4,
    R6,
    R7,
    R8,
    R9,
    SAME,
    SET,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    STORE,
    STORE_HALF,
    STORE_NUMBER,
    UNEQUAL,
    Code,
)
from .calls import CWD, SHAPES, Shape

DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)

# A record: time, pid and thread, call and its answer, command; length of both names, mount and length of both bases;
# the arguments; then the first name and its base, and for calls with two paths the second.
_HEAD = struct.Struct("<QIIii16siiIiIiQQQQ")
NAME, BASE = 512, 1024
SHORT = _HEAD.size + NAME + BASE
LONG = SHORT + NAME + BASE
_TIME, _PID, _CALL, _RESULT, _COMMAND, _LENGTHS, _BASES, _ARGUMENTS = 0, 8, 16, 20, 24, 40, 48, 64
_NAMES = _HEAD.size, SHORT

# What is kept of a sandbox: device and number of its namespace of processes, how many records did not fit, and pid and
# start of its keeper.
BOX = struct.Struct("<QQQQQ")

MEMBERS = (
    ("task_struct", "fs"),
    ("task_struct", "files"),
    ("fs_struct", "pwd"),
    ("files_struct", "fdt"),
    ("fdtable", "fd"),
    ("fdtable", "max_fds"),
    ("file", "f_path"),
    ("path", "mnt"),
    ("path", "dentry"),
    ("vfsmount", "mnt_root"),
    ("mount", "mnt"),
    ("mount", "mnt_id"),
    ("dentry", "d_parent"),
    ("dentry", "d_name"),
    ("qstr", "name"),
)
"""What must be known of the kernel's structures."""

# Helpers of the kernel.
_LOOKUP, _NOW, _WHO, _COMM, _TASK, _OUTPUT = 1, 5, 15, 16, 35, 130
_READ, _READ_USER_TEXT, _READ_TEXT, _PID_INSIDE = 113, 114, 115, 120
_NO_WAKE_UP = 1
_AT_FDCWD = -100
_DEEPEST = 24
_LONGEST_NAME = 256

# The stack: the registers of the caller, of which the first 128 bytes matter, and words.
_REGISTERS = -128
_OF_ARGUMENTS, _OF_CALL = (112, 104, 96, 56), 120
_KEY, _WORD, _PATH, _BASE, _OTHER, _OTHER_BASE = -136, -144, -152, -160, -168, -176
_MOUNT, _DENTRY, _ROOT, _ANSWER = -184, -192, -200, -208


class Record(NamedTuple):
    """One call. A name of None could not be read; `bases` are mount and names, outermost first, where they matter."""

    time: int
    pid: int
    call: int
    error: int
    command: bytes
    arguments: tuple[int, ...]
    names: tuple[bytes | None, ...]
    bases: tuple[tuple[int, list[bytes]] | None, ...]


def parse(data: bytes) -> Record:
    """What the program wrote."""
    time, _, pid, call, result, command, *lengths = _HEAD.unpack_from(data)
    measures, arguments = lengths[:6], tuple(lengths[6:])
    count = 2 if len(data) >= LONG else 1
    names: list[bytes | None] = []
    bases: list[tuple[int, list[bytes]] | None] = []
    for place in range(count):
        size, mount, long = measures[place], *measures[2 + 2 * place : 4 + 2 * place]
        name_at = _NAMES[place]
        names.append(data[name_at : name_at + size - 1] if size > 0 else None)
        above = data[name_at + NAME : name_at + NAME + max(long, 0)]
        bases.append(None if long < 0 else (mount, above.split(b"\0")[:-1][::-1]))
    return Record(time, pid, call, -result, command.partition(b"\0")[0], arguments, tuple(names), tuple(bases))


def program(offsets: list[int], boxes: int, rings: int, scratch: int) -> bytes:
    """The instructions, for a kernel with these offsets of `MEMBERS` and for maps with these descriptors."""
    return _Program(dict(zip(MEMBERS, offsets, strict=True)), boxes, rings, scratch).bytes()


class _Program(Code):
    """R6 is the record in the making, R7 the ring, R8 what is kept of the sandbox, R9 how long a base is so far."""

    def __init__(self, offsets: dict[tuple[str, str], int], boxes: int, rings: int, scratch: int) -> None:
        super().__init__()
        self._offsets = offsets
        self._begin()
        self._whose(boxes, rings, scratch)
        self._choose()
        self._tell()
        self.label("end")
        self.add(SET, R0, number=0)
        self.add(EXIT)

    def _begin(self) -> None:
        self.add(LOAD, R7, R1, 8)
        for number in DENIED:
            self.jump("denied", EQUAL, R7, -number)
        self.jump("end")
        self.label("denied")
        self.add(MOVE, R6, R1)
        self.add(STORE, FRAME, R7, _ANSWER)

    def _whose(self, boxes: int, rings: int, scratch: int) -> None:
        self.call(_WHO)
        self.add(STORE_HALF, FRAME, R0, _KEY)
        self._find(boxes, _KEY, R8)
        self._find(rings, _KEY, R7)
        self.add(LOAD, R3, R6, 0)
        self._read(_REGISTERS, 128)
        self.add(STORE_NUMBER, FRAME, offset=_KEY, number=0)
        self._find(scratch, _KEY, R6)

    def _find(self, fd: int, key: int, to: int) -> None:
        self.load_map(R1, fd)
        self.add(MOVE, R2, FRAME)
        self.add(ADD_NUMBER, R2, number=key)
        self.call(_LOOKUP)
        self.jump("end", EQUAL, R0, 0)
        self.add(MOVE, to, R0)

    def _read(self, to: int, size: int, helper: int = _READ) -> None:
        """From where R3 says, to the stack."""
        self.add(MOVE, R1, FRAME)
        self.add(ADD_NUMBER, R1, number=to)
        self.add(SET, R2, number=size)
        self.call(helper)

    def _choose(self) -> None:
        """What the arguments mean, by the number of the call."""
        self.add(LOAD, R1, FRAME, _REGISTERS + _OF_CALL)
        self.add(STORE_HALF, R6, R1, _CALL)
        self.add(LOAD, R2, FRAME, _ANSWER)
        self.add(STORE_HALF, R6, R2, _RESULT)
        shapes = sorted(set(SHAPES.values()), key=str)
        for number, shape in SHAPES.items():
            self.jump(f"shape{shapes.index(shape)}", EQUAL, R1, number)
        self.jump("end")
        for index, shape in enumerate(shapes):
            self.label(f"shape{index}")
            self._take(shape)
            self.jump("chosen")
        self.label("chosen")

    def _take(self, shape: Shape) -> None:
        for argument, base, to, base_to in (
            (shape.path, shape.base, _PATH, _BASE),
            (shape.other, shape.other_base, _OTHER, _OTHER_BASE),
        ):
            if argument is None:
                self.add(STORE_NUMBER, FRAME, offset=to, number=0)
            else:
                self.add(LOAD, R1, FRAME, _REGISTERS + _OF_ARGUMENTS[argument])
                self.add(STORE, FRAME, R1, to)
            if base == CWD:
                self.add(STORE_NUMBER, FRAME, offset=base_to, number=_AT_FDCWD)
            else:
                self.add(LOAD, R1, FRAME, _REGISTERS + _OF_ARGUMENTS[base])
                self.add(SHIFT_LEFT, R1, number=32)
                self.add(SHIFT_RIGHT, R1, number=32)
                self.add(STORE, FRAME, R1, base_to)

    def _tell(self) -> None:
        self.add(LOAD, R1, R8, 0)
        self.add(LOAD, R2, R8, 8)
        self._address(R3, _PID)
        self.add(SET, R4, number=8)
        self.call(_PID_INSIDE)
        self.jump("end", UNEQUAL, R0, 0)
        self.call(_NOW)
        self.add(STORE, R6, R0, _TIME)
        self._address(R1, _COMMAND)
        self.add(SET, R2, number=16)
        self.call(_COMM)
        for index, place in enumerate(_OF_ARGUMENTS):
            self.add(LOAD, R1, FRAME, _REGISTERS + place)
            self.add(STORE, R6, R1, _ARGUMENTS + 8 * index)
        self._name(0, _PATH, _BASE)
        self.add(LOAD, R1, FRAME, _OTHER)
        self.jump("two", UNEQUAL, R1, 0)
        self._give(SHORT)
        self.label("two")
        self._name(1, _OTHER, _OTHER_BASE)
        self._give(LONG)

    def _address(self, to: int, offset: int) -> None:
        self.add(MOVE, to, R6)
        self.add(ADD_NUMBER, to, number=offset)

    def _give(self, size: int) -> None:
        self.add(MOVE, R1, R7)
        self.add(MOVE, R2, R6)
        self.add(SET, R3, number=size)
        self.add(SET, R4, number=_NO_WAKE_UP)
        self.call(_OUTPUT)
        self.jump("end", EQUAL, R0, 0)
        self.add(SET, R1, number=1)
        self.add(ATOMIC_ADD, R8, R1, 16)
        self.jump("end")

    def _name(self, which: int, path: int, base: int) -> None:
        """The name, and for one that is not absolute where it begins."""
        self._address(R1, _NAMES[which])
        self.add(SET, R2, number=NAME)
        self.add(LOAD, R3, FRAME, path)
        self.call(_READ_USER_TEXT)
        self.add(STORE_HALF, R6, R0, _LENGTHS + 4 * which)
        self.add(SET, R9, number=-1)
        self.jump(f"relative{which}", NOT_MORE, R0, 0)
        self.add(LOAD_BYTE, R1, R6, _NAMES[which])
        self.jump(f"based{which}", EQUAL, R1, ord("/"))
        self.label(f"relative{which}")
        self._walk(which, base)
        self.label(f"based{which}")
        self.add(STORE_HALF, R6, R9, _BASES + 8 * which + 4)

    def _follow(self, structure: str, member: str, size: int = 8) -> None:
        """R3 points to a structure: have what its member holds in R3 instead."""
        self.add(ADD_NUMBER, R3, number=self._offsets[structure, member])
        self.add(STORE_NUMBER, FRAME, offset=_WORD, number=0)
        self._read(_WORD, size)
        self.add(LOAD, R3, FRAME, _WORD)

    def _walk(self, which: int, base: int) -> None:
        """The names from a directory up to the root of its mount; R9 stays -1 when there is an end to neither."""
        self.call(_TASK)
        self.add(MOVE, R3, R0)
        self.add(LOAD, R1, FRAME, base)
        self.jump(f"directory{which}", EQUAL, R1, _AT_FDCWD)
        self._open_file(which, base)
        self.jump(f"path{which}")
        self.label(f"directory{which}")
        self._follow("task_struct", "fs")
        self.add(ADD_NUMBER, R3, number=self._offsets["fs_struct", "pwd"])
        self.label(f"path{which}")
        self._climb(which)

    def _open_file(self, which: int, base: int) -> None:
        """The path of an open file, by its number."""
        self._follow("task_struct", "files")
        self._follow("files_struct", "fdt")
        self.add(STORE, FRAME, R3, _ROOT)
        self._follow("fdtable", "max_fds", 4)
        self.add(LOAD, R1, FRAME, base)
        self.jump(f"based{which}", LESS, R1, 0)
        self.jump(f"based{which}", NOT_BELOW, R1, source=R3)
        self.add(LOAD, R3, FRAME, _ROOT)
        self._follow("fdtable", "fd")
        self.add(LOAD, R1, FRAME, base)
        self.add(SHIFT_LEFT, R1, number=3)
        self.add(ADD, R3, R1)
        self.add(STORE_NUMBER, FRAME, offset=_WORD, number=0)
        self._read(_WORD, 8)
        self.add(LOAD, R3, FRAME, _WORD)
        self.jump(f"based{which}", EQUAL, R3, 0)
        self.add(ADD_NUMBER, R3, number=self._offsets["file", "f_path"])

    def _climb(self, which: int) -> None:
        """R3 points to a path."""
        self.add(STORE, FRAME, R3, _ROOT)
        self._follow("path", "mnt")
        self.add(STORE, FRAME, R3, _MOUNT)
        self.add(LOAD, R3, FRAME, _ROOT)
        self._follow("path", "dentry")
        self.add(STORE, FRAME, R3, _DENTRY)
        self.add(LOAD, R3, FRAME, _MOUNT)
        self.add(ADD_NUMBER, R3, number=-self._offsets["mount", "mnt"])
        self._follow("mount", "mnt_id", 4)
        self.add(STORE_HALF, R6, R3, _BASES + 8 * which)
        self.add(LOAD, R3, FRAME, _MOUNT)
        self._follow("vfsmount", "mnt_root")
        self.add(STORE, FRAME, R3, _ROOT)
        self.add(SET, R9, number=0)
        for _ in range(_DEEPEST):
            self._step(which)
        self.label(f"lost{which}")
        self.add(SET, R9, number=-1)

    def _step(self, which: int) -> None:
        self.add(LOAD, R3, FRAME, _DENTRY)
        self.add(LOAD, R1, FRAME, _ROOT)
        self.jump(f"based{which}", SAME, R3, source=R1)
        self.jump(f"lost{which}", ABOVE, R9, BASE - _LONGEST_NAME)
        self.add(ADD_NUMBER, R3, number=self._offsets["dentry", "d_name"])
        self._follow("qstr", "name")
        self._address(R1, _NAMES[which] + NAME)
        self.add(ADD, R1, R9)
        self.add(SET, R2, number=_LONGEST_NAME)
        self.call(_READ_TEXT)
        self.jump(f"lost{which}", NOT_MORE, R0, 0)
        self.jump(f"lost{which}", ABOVE, R0, _LONGEST_NAME)
        self.add(ADD, R9, R0)
        self.add(LOAD, R3, FRAME, _DENTRY)
        self._follow("dentry", "d_parent")
        self.add(STORE, FRAME, R3, _DENTRY)


def namespace(pid: int) -> tuple[int, int]:
    """Device, as the kernel writes it, and number of a process's namespace of processes. Raises OSError."""
    status = os.stat(f"/proc/{pid}/ns/pid")
    return os.major(status.st_dev) << 20 | os.minor(status.st_dev), status.st_ino
