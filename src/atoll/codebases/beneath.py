"""The one way down into a tree: the kernel follows no link on it and never leaves the tree, however deep that is."""

from __future__ import annotations

import errno
import os

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


def _pieces(path: str) -> list[bytes]:
    """A path in pieces that the kernel takes."""
    raw = os.fsencode(path)
    if len(raw) <= _LONGEST:
        return [raw] if raw else []
    pieces = [b""]
    for name in raw.split(b"/"):
        if len(pieces[-1]) + len(name) > _LONGEST:
            pieces.append(name)
        else:
            pieces[-1] = pieces[-1] + b"/" + name if pieces[-1] else name
    return pieces


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
