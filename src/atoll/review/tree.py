"""One side of a comparison: a tree of files below a descriptor, looked at by path, through no link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Literal, Self

from . import beneath

Type = Literal["file", "directory", "symlink", "other"]

# Longer paths can be opened by no name. Nobody nests so deeply, but to make others walk for ever.
LONGEST = 4000
DEEPEST = 256

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
        if not name:
            return os.fstat(self.root)
        try:
            found = os.stat(name, dir_fd=self.directory(above), follow_symlinks=False)
            return found if not self._resolve or self._is_here(above, name) else None
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def _is_here(self, above: str, name: str) -> bool:
        """Whether no other mount covers it. Raises OSError."""
        os.close(beneath.open_beneath(self.directory(above), name, os.O_PATH | os.O_NOFOLLOW, self._resolve))
        return True

    def is_elsewhere(self, path: str) -> bool:
        """Whether another mount covers a path."""
        try:
            os.close(beneath.open_beneath(self.root, path, os.O_PATH | os.O_NOFOLLOW, beneath.NO_XDEV))
        except OSError as error:
            return error.errno == errno.EXDEV
        return False

    def open_file(self, path: str, access: int = os.O_RDONLY) -> int:
        """A regular file, to be read. Raises OSError, with EINVAL for anything else: nothing else is ever opened."""
        above, name = split(path)
        fd = beneath.open_beneath(self.directory(above), name, os.O_PATH | os.O_NOFOLLOW, self._resolve)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", path)
            # By descriptor, so that it is the very file that was just looked at.
            return os.open(f"/proc/self/fd/{fd}", access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def take(self, path: str) -> None:
        """Have an overlay take something into its own layer that so far it only shows from below, if it can."""
        above, name = split(path)
        try:
            place = self.directory(above)
            if stat.S_ISREG(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                os.close(self.open_file(path, os.O_WRONLY))
            else:
                os.chown(name, -1, -1, dir_fd=place, follow_symlinks=False)
        except OSError:
            pass

    def link_target(self, path: str) -> str:
        """Raises OSError."""
        above, name = split(path)
        return os.readlink(name, dir_fd=self.directory(above))

    def names(self, path: str) -> list[str]:
        """The entries of a directory; none for one that is not there. Raises OSError."""
        return [name for name, _ in self.entries(path)]

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """As `names`, and of each whether it is a directory."""
        try:
            fd = beneath.open_beneath(self.root, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, self._resolve)
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise
        try:
            with os.scandir(fd) as found:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        finally:
            os.close(fd)

    def below(self, path: str) -> Iterator[tuple[str, bool]]:
        """Everything below a directory, and whether it is one; parents first, without what is too deep.

        Raises OSError.
        """
        waiting = [path]
        while waiting:
            above = waiting.pop()
            for name, directory in self.entries(above):
                here = join(above, name)
                yield here, directory
                if directory and not is_too_deep(here):
                    waiting.append(here)


def split(path: str) -> tuple[str, str]:
    """The directory of a path, and its name there."""
    above, _, name = path.rpartition("/")
    return above, name


def join(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


def is_too_deep(path: str) -> bool:
    """Whether a path is beyond what anybody works with: its descendants are not looked at, and it is not applied."""
    return path.count("/") >= DEEPEST or (len(path) > LONGEST // 4 and len(os.fsencode(path)) > LONGEST)


def type_of(mode: int) -> Type:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"
