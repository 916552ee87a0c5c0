"""Looking at a tree, whoever owns it and whatever changes in it meanwhile: no link is followed, no tree too deep."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .beneath import Descent
from .manifest import Entries, Entry

Ignored: TypeAlias = "Callable[[str, bool], bool]"
_KEPT_BITS = 0o777
_AS_ROOT = os.geteuid() == 0


class Stamp(NamedTuple):
    """What changes when a file does. Of the mode those bits that are kept: the others would lend somebody's rights."""

    size: int
    mtime: int
    ctime: int
    inode: int
    mode: int

    def entry(self, digest: str) -> Entry:
        return Entry("file", self.mode, self.size, self.mtime, digest)


class Walk(NamedTuple):
    """A tree as it was found: `entries` are its directories and links, `stamps` its files, which nobody has read.

    `skipped` are sockets, pipes, devices and the like, `refused` what may not be read.
    """

    entries: Entries
    stamps: dict[str, Stamp]
    skipped: list[str]
    refused: list[str]


def stamp_of(status: os.stat_result) -> Stamp:
    # The copy is ours: where only others could read it, we could not.
    mode = status.st_mode & _KEPT_BITS | (0 if _AS_ROOT else 0o400)
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, mode)


def walk(root: int, ignored: Ignored | None = None, omit: frozenset[tuple[int, int]] = frozenset()) -> Walk:
    """Everything below a directory. What vanishes meanwhile is not there.

    Args:
        ignored: says of a path, and of whether it is a directory, that it is left out with all below it.
        omit: directories by device and inode, which are left out and named.

    Raises:
        OSError: a directory became something else meanwhile, or the disk fails.
    """
    found = Walk({}, {}, [], [])
    waiting = [""]
    with Descent(root) as descent:
        while waiting:
            directory = waiting.pop()
            try:
                fd = descent.open(directory)
            except FileNotFoundError:
                found.entries.pop(directory, None)
            except PermissionError:
                found.refused.append(directory)
            else:
                waiting += _look(fd, directory, found, ignored, omit)
    return found


def _look(
    fd: int,
    directory: str,
    found: Walk,
    ignored: Ignored | None,
    omit: frozenset[tuple[int, int]],
) -> list[str]:
    """Note what is in one directory; gives the directories in it."""
    below = []
    with os.scandir(fd) as names:
        for each in names:
            path = f"{directory}/{each.name}" if directory else each.name
            try:
                status = each.stat(follow_symlinks=False)
                if ignored is not None and ignored(path, stat.S_ISDIR(status.st_mode)):
                    continue
                if stat.S_ISREG(status.st_mode):
                    found.stamps[path] = stamp_of(status)
                elif stat.S_ISDIR(status.st_mode):
                    if (status.st_dev, status.st_ino) in omit:
                        found.skipped.append(path)
                        continue
                    found.entries[path] = _directory(status)
                    below.append(path)
                elif stat.S_ISLNK(status.st_mode):
                    target = os.readlink(each.name, dir_fd=fd)
                    found.entries[path] = Entry("symlink", 0o777, 0, status.st_mtime_ns, target)
                else:
                    found.skipped.append(path)
            except FileNotFoundError:
                continue
    return below


def _directory(status: os.stat_result) -> Entry:
    mode = status.st_mode & _KEPT_BITS | (0 if _AS_ROOT else 0o500)
    return Entry("directory", mode, 0, status.st_mtime_ns)
