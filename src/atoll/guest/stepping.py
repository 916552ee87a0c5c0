"""Opening a file one name at a time, for kernels without `openat2`: gVisor, and Linux before 5.6.

It keeps the same promise. Every step is a descriptor that follows no link; links are read and walked like the rest of
the path, so that they lead nowhere but below the start; and ".." goes back to the descriptor that was come from, so
that whoever moves directories about meanwhile moves nobody out.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import List, Optional

_MAX_LINKS = 40
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_by_steps(start: int, path: bytes, flags: int, mode: int, *, in_root: bool, links: bool = True) -> int:
    """What is below the directory `start`, as a descriptor. Raises OSError.

    Args:
        in_root: `start` is taken for "/", where ".." stays; otherwise a way out is EXDEV.
        links: whether they are followed; otherwise each is ELOOP.
    """
    walk = _Walk(start, in_root, links)
    try:
        return walk.open(path, flags | os.O_CLOEXEC, mode)
    finally:
        walk.close()


class _Walk:
    def __init__(self, start: int, in_root: bool, links: bool) -> None:
        self._start = start
        self._in_root = in_root
        self._left = _MAX_LINKS if links else 0
        self._stack: List[int] = []

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop())

    def open(self, path: bytes, flags: int, mode: int) -> int:
        if not path:
            raise _error(errno.ENOENT, path)
        names = self._names(path)
        while names:
            name = names.pop()
            if name == b"..":
                self._up(path)
            elif name != b".":
                if names:
                    self._down(name, names, path)
                    continue
                wanted = self._last(name, names, flags, mode, path)
                if wanted is not None:
                    return wanted
        if flags & os.O_CREAT:
            raise _error(errno.EISDIR, path)
        return os.open(b".", flags, dir_fd=self._here())

    def _here(self) -> int:
        return self._stack[-1] if self._stack else self._start

    def _names(self, path: bytes) -> List[bytes]:
        """The names of a path, the first one last. One that ends with a slash has "." as its last."""
        if path.startswith(b"/"):
            if not self._in_root:
                raise _error(errno.EXDEV, path)
            self.close()
        names = [name for name in path.split(b"/") if name]
        if path.endswith((b"/", b"/.")) or not names:
            names.append(b".")
        return names[::-1]

    def _up(self, path: bytes) -> None:
        if self._stack:
            os.close(self._stack.pop())
        elif not self._in_root:
            raise _error(errno.EXDEV, path)

    def _down(self, name: bytes, names: List[bytes], path: bytes) -> None:
        fd = os.open(name, _STEP, dir_fd=self._here())
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                self._stack.append(fd)
                fd = -1
            elif stat.S_ISLNK(found.st_mode):
                self._follow(name, names, path, found.st_dev)
            else:
                raise _error(errno.ENOTDIR, path)
        finally:
            if fd >= 0:
                os.close(fd)

    def _last(self, name: bytes, names: List[bytes], flags: int, mode: int, path: bytes) -> Optional[int]:
        """The end of the path; None when it is a link to go on with."""
        device = None if flags & (os.O_NOFOLLOW | os.O_EXCL) else self._device_of_link(name)
        if device is not None:
            self._follow(name, names, path, device)
            return None
        fd = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=self._here())
        # Only then, since it may have become a link meanwhile; without O_PATH that is an error.
        if not flags & os.O_NOFOLLOW and flags & os.O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise _error(errno.ELOOP, path)
        return fd

    def _device_of_link(self, name: bytes) -> Optional[int]:
        """None for what is no link."""
        try:
            found = os.stat(name, dir_fd=self._here(), follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_dev if stat.S_ISLNK(found.st_mode) else None

    def _follow(self, name: bytes, names: List[bytes], path: bytes, device: int) -> None:
        """Put where a link leads in front of what is left of the path."""
        if not self._left:
            raise _error(errno.ELOOP, path)
        self._left -= 1
        target = os.readlink(name, dir_fd=self._here())
        if not target:
            raise _error(errno.ENOENT, path)
        if device == _device_of_processes() and (target.startswith(b"/") or b":" in target):
            raise _error(errno.ELOOP, path)  # one of the magic ones, as of an open file
        names += self._names(target)


def _device_of_processes() -> int:
    try:
        return os.stat("/proc").st_dev
    except FileNotFoundError:
        return -1


def _error(number: int, path: bytes) -> OSError:
    return OSError(number, os.strerror(number), path)
