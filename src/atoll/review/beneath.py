"""The system calls of the review gate that Python has no name for. Paths are below a directory, and stay there."""

from __future__ import annotations

import ctypes
import errno
import os

from ..guest import beneath

NO_XDEV = beneath.NO_XDEV

_libc = ctypes.CDLL(None, use_errno=True)
_syncfs = _libc["syncfs"]
_syncfs.argtypes = (ctypes.c_int,)


def open_beneath(directory: int, path: str, flags: int, resolve: int = 0) -> int:
    """Open what lies below a directory, through no symbolic link at all; "" is the directory itself.

    A link at the end of the path can be had with O_PATH and O_NOFOLLOW. Raises OSError; with NO_XDEV it is EXDEV
    where the path leads into another mount.
    """
    resolve |= beneath.BENEATH | beneath.NO_SYMLINKS | beneath.NO_MAGICLINKS
    return beneath.openat2(directory, os.fsencode(path) or b".", flags, 0, resolve)


def leads_outside(directory: int, path: str) -> bool:
    """Whether a path, with every link on its way followed, leaves the directory. One that leads nowhere does not."""
    resolve = beneath.BENEATH | beneath.NO_MAGICLINKS
    try:
        os.close(beneath.openat2(directory, os.fsencode(path), os.O_PATH, 0, resolve))
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
    return False


def move(source: int, name: str, target: int, new_name: str) -> None:
    """Rename to a name that is free, or raise FileExistsError. Raises OSError."""
    beneath.move(source, os.fsencode(name), target, os.fsencode(new_name))


def exchange(source: int, name: str, target: int, other: str) -> None:
    """Swap two names that both exist, in one step. Raises OSError; EINVAL where the file system cannot."""
    beneath.renameat2(source, os.fsencode(name), target, os.fsencode(other), beneath.EXCHANGE)


def sync_file_system(directory: int) -> None:
    """Everything on the file system of a directory, onto its disk. Raises OSError."""
    if _syncfs(directory) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
