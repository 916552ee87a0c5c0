"""One side of a comparison: a tree of files below a descriptor, looked at by path, through no link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Literal, Self

from . import beneath

Type = Literal["file", "directory", "symlink", "other"]

# Longer ones can be opened by no name, so nobody could use what is there.
LONGEST_PATH = 4000

_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG, errno.ESTALE))


class Tree:
    """Files below `root`, a descriptor that stays the caller's.

    What lies on another mount counts as absent when `one_mount` is set. Nothing is cached but the directory that was
    looked at last, so a tree may change while it is read; every answer was true at some moment.
    """

    def __init__(self, root: int, *, one_mount: bool) -> None:
        self.root = root
        self._resolve = beneath.NO_XDEV if one_mount else 0
        self._last: tuple[str, int] | None = None

    def close(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def directory(self, path: str) -> int:
        """A descriptor of a directory, good until the next call. Raises OSError."""
        if self._last is not None and self._last[0] == path:
            return self._last[1]
        fd = beneath.open_beneath(self.root, path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, self._resolve)
        self.close()
        self._last = (path, fd)
        return fd

    def stat(self, path: str) -> os.stat_result | None:
        """What is at a path, itself and not what it may link to; None when nothing is. Raises OSError."""
        above, name = split(path)
        try:
            if not name:
                return os.fstat(self.root)
            fd = beneath.open_beneath(self.directory(above), name, os.O_PATH | os.O_NOFOLLOW, self._resolve)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def is_elsewhere(self, path: str) -> bool:
        """Whether another mount covers a path."""
        try:
            os.close(beneath.open_beneath(self.root, path, os.O_PATH | os.O_NOFOLLOW, beneath.NO_XDEV))
        except OSError as error:
            return error.errno == errno.EXDEV
        return False

    def open_file(self, path: str) -> int:
        """A regular file, to be read. Raises OSError, with EINVAL for anything else: nothing else is ever opened."""
        above, name = split(path)
        fd = beneath.open_beneath(self.directory(above), name, os.O_PATH | os.O_NOFOLLOW, self._resolve)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", path)
            # By descriptor, so that it is the very file that was just looked at.
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def link_target(self, path: str) -> str:
        """Raises OSError."""
        above, name = split(path)
        return os.readlink(name, dir_fd=self.directory(above))

    def names(self, path: str) -> list[str]:
        """The entries of a directory; none for one that is not there. Raises OSError."""
        try:
            fd = beneath.open_beneath(self.root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, self._resolve)
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def below(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below a directory, parents first, but not what is below a path that is too long.

        Raises OSError.
        """
        waiting = [path]
        while waiting:
            above = waiting.pop()
            for name in self.names(above):
                here = join(above, name)
                found = self.stat(here)
                if found is None:
                    continue
                yield here, found
                if stat.S_ISDIR(found.st_mode) and not is_too_long(here):
                    waiting.append(here)


def split(path: str) -> tuple[str, str]:
    """The directory of a path, and its name there."""
    above, _, name = path.rpartition("/")
    return above, name


def join(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


def is_too_long(path: str) -> bool:
    return len(path) > LONGEST_PATH // 4 and len(os.fsencode(path)) > LONGEST_PATH


def type_of(mode: int) -> Type:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"
