"""Flushing to disk: what was written is there before something that is true only with it is said."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..engine import kernel

# Their journals keep the order of names: once something later is on the disk, all earlier names are.
_ORDERED = frozenset((0xEF53, 0x58465342))  # ext4, XFS
_FEW = 16


def flush_tree(directory: str, new: Sequence[str]) -> None:
    """Everything in a directory is on the disk before what is written later, and so are the contents of `new`.

    Args:
        new: every file in it, or linked into it, that was not written out before.

    Raises:
        OSError: the disk refuses.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if len(new) > _FEW or not _is_ordered(fd):
            # The whole file system: cheaper than each of thousands of files.
            kernel.syncfs(fd)
            return
    finally:
        os.close(fd)
    for path in new:
        flush(path)


def flush_names(directory: str) -> None:
    """The names in a directory are on the disk before what is written later. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _is_ordered(fd):
            os.fsync(fd)
    finally:
        os.close(fd)


def flush(path: str) -> None:
    """A file's content, or the names in a directory, are on the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_ordered(fd: int) -> bool:
    return kernel.file_system(fd) in _ORDERED
