"""Locks on files and directories, which the kernel gives back however a process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def held(path: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which is made when it is missing. Waits for it.

    Raises:
        OSError: the file cannot be opened.
    """
    fd = os.open(path, _FILE, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def held_at_once(path: str) -> Iterator[bool]:
    """Hold the lock of a file alone, if that can be had without waiting; whether it was. Raises as `held` does."""
    fd = os.open(path, _FILE, 0o600)
    try:
        yield try_alone(fd)
    finally:
        os.close(fd)


def try_alone(fd: int) -> bool:
    """Whether the lock could be had at once, and nobody else has any."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def in_use(directory: str) -> int:
    """A descriptor that keeps a version from being removed for as long as it, or a copy of it, is open.

    Raises:
        FileNotFoundError: it is gone; there is a newer one.
        OSError: it cannot be opened.
    """
    fd = os.open(directory, _DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        # Whoever removes one has it alone and takes its name away first.
        if not is_still_at(fd, directory):
            raise FileNotFoundError(2, "The version was removed", directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_directory(path: str) -> int:
    """A descriptor of a directory, not through a link. Raises OSError."""
    return os.open(path, _DIRECTORY)


def is_still_at(fd: int, path: str) -> bool:
    """Whether a path still leads to what a descriptor was opened from."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)
