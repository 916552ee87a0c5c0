"""The one way down into a tree: the kernel follows no link on it and never leaves the tree, however deep that is."""

from __future__ import annotations

import errno
import os
from typing import Self

from ..guest.paths import open_beneath
from ..guest.refusal import Refused

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST = 4000


def open_below(root: int, path: str) -> int:
    """A directory below another one; "" is that one itself.

    Raises:
        OSError: there is none, or a link is on the way.
    """
    fd = os.dup(root)
    for piece in _pieces(path):
        try:
            below = _step(fd, piece)
        finally:
            os.close(fd)
        fd = below
    return fd


class Descent:
    """The directories of a tree one after the other: below the last one the way is short."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._path = ""
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()

    def open(self, path: str) -> int:
        """A descriptor that stays open until the next call. Raises as `open_below` does."""
        if self._fd >= 0 and self._path and path.startswith(f"{self._path}/"):
            fd = open_below(self._fd, path[len(self._path) + 1 :])
        else:
            fd = open_below(self._root, path)
        self._leave()
        self._path, self._fd = path, fd
        return fd

    def _leave(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _pieces(path: str) -> list[bytes]:
    """A path in pieces that the kernel takes."""
    raw = os.fsencode(path)
    pieces = []
    while len(raw) > _LONGEST:
        end = raw.rindex(b"/", 0, _LONGEST)
        pieces.append(raw[:end])
        raw = raw[end + 1 :]
    return [*pieces, raw] if raw else pieces


def _step(fd: int, piece: bytes) -> int:
    try:
        return open_beneath(fd, piece, DIRECTORY)
    except Refused:
        pass
    except OSError as error:
        # Some containers forbid calls that they do not know with EPERM.
        if error.errno != errno.EPERM:
            raise
    return _step_by_name(fd, piece)


def _step_by_name(start: int, piece: bytes) -> int:
    """The same where the kernel has no openat2: one name at a time."""
    fd = os.dup(start)
    for name in piece.split(b"/"):
        try:
            if name in (b"", b".", b".."):
                raise OSError(errno.EINVAL, "This is no path below a directory", piece)
            below = os.open(name, DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd
