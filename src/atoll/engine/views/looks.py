"""How a path looks in a view: its mode and its owner, by its level. Pure.

Two users are enough for all levels: what is writable belongs to the sandbox's user, all else to an id that nobody
in the sandbox has, and that its namespaces do not map, so that even their root is a stranger to it. A writable
directory that holds something protected is the stranger's and sticky, like /tmp: everybody may make files in it,
and remove only their own.
"""

from __future__ import annotations

import stat
from typing import NamedTuple

from ...types import Level
from .tree import Directory, Entry

_READ, _WRITE, _EXECUTE = 0o444, 0o222, 0o111
_SHARED, _OWNERS = 0o1777, 0o700


class Look(NamedTuple):
    """Permission bits, and whether the sandbox's user is the owner."""

    mode: int
    owned: bool


def readable_mode(mode: int) -> int:
    """For the eyes of a stranger: readable by all, and executable by all if it is by anybody."""
    return _READ | (_EXECUTE if mode & _EXECUTE else 0)


def of_entry(level: Level, mode: int) -> Look:
    """A file, pipe or socket. What is only to be seen has no permission for anybody."""
    if level == "write":
        return Look((mode & 0o777) | 0o600, owned=True)
    return Look(readable_mode(mode) if level == "read" else 0, owned=False)


def of_directory(directory: Directory, *, divided: bool = True) -> Look:
    """`divided` says whether owners protect it; where mounts do, its owner must be able to remove it one day."""
    mode = stat.S_IMODE(directory.mode) & 0o777
    if not divided:
        return Look(mode | _OWNERS | (0 if directory.level == "write" else _READ | _EXECUTE), owned=True)
    if directory.level != "write":
        return Look((mode | _READ | _EXECUTE) & ~_WRITE, owned=False)
    if directory.guarded:
        return Look(_SHARED, owned=False)
    return Look(mode | _OWNERS, owned=True)


def link_target(entry: Entry) -> str:
    """What a symlink says is its content: of one that is only to be seen, the length alone is told."""
    return entry.target if entry.level != "view" else "?" * len(entry.target.encode(errors="surrogateescape"))
