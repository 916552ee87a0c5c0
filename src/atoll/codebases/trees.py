"""Making the tree of a version: real directories, links to blobs, symbolic links."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Mapping

from .blobs import Blobs
from .manifest import Entries, Entry
from .walking import open_below

_MODE = 0o755


def build(place: str, entries: Entries, blobs: Blobs, private: Container[str] = ()) -> None:
    """Make a tree at a path where nothing is.

    Args:
        private: files that must not share anything with a blob.

    Raises:
        FileNotFoundError: a file is not stored.
        OSError: the disk refuses.
    """
    os.mkdir(place, 0o700)
    root = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for directory, children in _by_directory(entries).items():
            fd = open_below(root, directory)
            try:
                for path, name, entry in children:
                    _make(fd, name, entry, blobs, private=path in private)
            finally:
                os.close(fd)
        for path in reversed(entries):
            if entries[path].kind == "directory":
                _dress(root, path, entries[path])
        os.fchmod(root, _MODE)
    finally:
        os.close(root)


def _by_directory(entries: Mapping[str, Entry]) -> dict[str, list[tuple[str, str, Entry]]]:
    """The paths and names in each directory that has any, a directory before those in it."""
    found: dict[str, list[tuple[str, str, Entry]]] = {}
    for path, entry in entries.items():
        parent, _, name = path.rpartition("/")
        found.setdefault(parent, []).append((path, name, entry))
    return found


def _make(directory: int, name: str, entry: Entry, blobs: Blobs, *, private: bool) -> None:
    if entry.kind == "file":
        if private:
            blobs.copy(entry, directory, name)
        else:
            blobs.link(entry, directory, name)
    elif entry.kind == "directory":
        os.mkdir(name, 0o700, dir_fd=directory)
    else:
        os.symlink(entry.content, name, dir_fd=directory)
        with contextlib.suppress(OverflowError):
            os.utime(name, ns=(entry.mtime, entry.mtime), dir_fd=directory, follow_symlinks=False)


def _dress(root: int, path: str, entry: Entry) -> None:
    """Last of all: making something in a directory changes its time, and its mode may forbid it."""
    fd = open_below(root, path)
    try:
        os.fchmod(fd, entry.mode)
        with contextlib.suppress(OverflowError):
            os.utime(fd, ns=(entry.mtime, entry.mtime))
    finally:
        os.close(fd)
