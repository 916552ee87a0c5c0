"""The system calls that name files: where their arguments have the paths, and what an audit calls them.

`access` is not among them: it asks whether something would be refused. Numbers are those of x86-64.
"""

from __future__ import annotations

import os
from typing import NamedTuple

CWD = -1
"""Instead of the place of an argument: what is relative is so to the working directory."""


class Shape(NamedTuple):
    """Which arguments, counted from 0, are the path and the directory that it is relative to; then another such pair.

    Without a path it is the open file itself.
    """

    path: int | None
    base: int
    other: int | None = None
    other_base: int = CWD


_AT_ZERO, _AT_ONE, _AT_ONE_OF_DIRECTORY = Shape(0, CWD), Shape(1, CWD), Shape(1, 0)
_OPEN_FILE = Shape(None, 0)

# name of the operation, shape, numbers
_TABLE: tuple[tuple[str, Shape, tuple[int, ...]], ...] = (
    ("open", _AT_ZERO, (2,)),
    ("open", _AT_ONE_OF_DIRECTORY, (257,)),
    ("open", _AT_ONE_OF_DIRECTORY, (437,)),
    ("write", _AT_ZERO, (85, 76)),
    ("write", _OPEN_FILE, (77, 285)),
    ("info", _AT_ZERO, (4, 6, 89)),
    ("info", _AT_ONE_OF_DIRECTORY, (262, 332, 267)),
    ("mkdir", _AT_ZERO, (83,)),
    ("mkdir", _AT_ONE_OF_DIRECTORY, (258,)),
    ("mknod", _AT_ZERO, (133,)),
    ("mknod", _AT_ONE_OF_DIRECTORY, (259,)),
    ("remove", _AT_ZERO, (84, 87)),
    ("remove", _AT_ONE_OF_DIRECTORY, (263,)),
    ("move", Shape(0, CWD, 1, CWD), (82,)),
    ("move", Shape(1, 0, 3, 2), (264, 316)),
    ("link", Shape(0, CWD, 1, CWD), (86,)),
    ("link", Shape(1, 0, 3, 2), (265,)),
    ("symlink", _AT_ONE, (88,)),
    ("symlink", Shape(2, 1), (266,)),
    ("chmod", _AT_ZERO, (90,)),
    ("chmod", _AT_ONE_OF_DIRECTORY, (268, 452)),
    ("chmod", _OPEN_FILE, (91,)),
    ("chown", _AT_ZERO, (92, 94)),
    ("chown", _AT_ONE_OF_DIRECTORY, (260,)),
    ("chown", _OPEN_FILE, (93,)),
    ("utime", _AT_ZERO, (132, 235)),
    ("utime", _AT_ONE_OF_DIRECTORY, (280, 261)),
    ("setxattr", _AT_ZERO, (188, 189, 197, 198)),
    ("setxattr", _OPEN_FILE, (190, 199)),
    ("execute", _AT_ZERO, (59,)),
    ("execute", _AT_ONE_OF_DIRECTORY, (322,)),
    ("chdir", _AT_ZERO, (80,)),
    ("chdir", _OPEN_FILE, (81,)),
)

SHAPES = {number: shape for _, shape, numbers in _TABLE for number in numbers}
_NAMES = {number: name for name, _, numbers in _TABLE for number in numbers}
# Where the flags of an `open` are; those of openat2 are in memory that was not looked at.
_FLAGS = {2: 1, 257: 2}


def operation(number: int, arguments: tuple[int, ...]) -> str:
    """What a call does, in the words of the file API where it has one."""
    if number not in _FLAGS:
        return _NAMES[number]
    flags = arguments[_FLAGS[number]]
    if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
        return "write"
    return "list" if flags & os.O_DIRECTORY else "read"
