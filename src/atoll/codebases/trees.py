"""Making the tree of a version: real directories, links to blobs, symbolic links."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Mapping

from .beneath import DIRECTORY, Descent, open_below
from .blobs import Blobs
from .manifest import Entries, Entry

_MODE = 0o755


def build(place: str, entries: Entries, blobs: Blobs, private: Container[str] = (), spare: str | None = None) -> None:
    """Make a tree at a path where nothing is.

    Args:
        private: files that must not share anything with a blob.
        spare: another tree. What it has, and the blobs have lost, is stored again.

    Raises:
        FileNotFoundError: a file is not stored.
        OSError: the disk refuses.
    """
    os.mkdir(place, 0o700)
    root = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with Descent(root) as descent:
            for directory, children in _by_directory(entries).items():
                fd = descent.open(directory)
                for path, name, entry in children:
                    if entry.kind == "file":
                        _place(fd, path, entry, blobs, private, spare)
                    else:
                        _make(fd, name, entry)
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


def _place(directory: int, path: str, entry: Entry, blobs: Blobs, private: Container[str], spare: str | None) -> None:
    put = blobs.copy if path in private else blobs.link
    name = path.rpartition("/")[2]
    try:
        put(entry, directory, name)
    except FileNotFoundError:
        if spare is None or not _restored(path, entry, blobs, spare):
            raise
        put(entry, directory, name)


def _restored(path: str, entry: Entry, blobs: Blobs, spare: str) -> bool:
    """Whether a file of another tree is what the blobs have lost. Then they have it again."""
    parent, _, name = path.rpartition("/")
    with contextlib.ExitStack() as stack:
        try:
            root = os.open(spare, DIRECTORY)
            stack.callback(os.close, root)
            directory = open_below(root, parent)
            stack.callback(os.close, directory)
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            return False
        stack.callback(os.close, source)
        return blobs.restore(entry, source)


def _make(directory: int, name: str, entry: Entry) -> None:
    if entry.kind == "directory":
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
