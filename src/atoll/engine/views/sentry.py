"""Whether anything in a tree has changed since it was looked at, without looking at it again.

The kernel tells of every change of names, contents and attributes in the directories that are watched. What it does
not tell of is a change of content through a name outside the tree or through shared memory; a view shows the new
content then, since it has none of its own, with the size and the time of before.
"""

from __future__ import annotations

import os

from ...guest.inotify import Inotify
from ...guest.refusal import Refused
from .. import kernel

# On others the changes of another machine are not told, or the number of a file is not kept.
_LOCAL = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0xCA451A4E, 0x2FC12FC1)
)  # ext, xfs, btrfs, tmpfs, f2fs, bcachefs, zfs
# Watches are counted for the whole user, who has other programs.
MOST_DIRECTORIES = 20_000


class Sentry:
    """Watches directories, until there are too many of them or one cannot be watched; `useful` says so."""

    def __init__(self) -> None:
        self.useful = True
        self._count = 0
        try:
            self._events: Inotify | None = Inotify()
        except Refused:
            self._events = None
            self.useful = False

    def watch(self, directory: int) -> None:
        """Begin to watch an open directory, or any other file by its descriptor."""
        if not self.useful or self._events is None:
            return
        self._count += 1
        if self._count > MOST_DIRECTORIES or (self._count == 1 and kernel.file_system(directory) not in _LOCAL):
            self.useful = False
            return
        try:
            self._events.add(directory)
        except (Refused, OSError):
            self.useful = False

    def watch_name(self, path: str) -> None:
        """Begin to watch one file, and whether its name is removed."""
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self.watch(fd)
        finally:
            os.close(fd)

    def fileno(self) -> int:
        return -1 if self._events is None else self._events.fd

    def is_calm(self) -> bool:
        """Whether nothing has happened so far."""
        return self.useful and self._events is not None and not self._events.read()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
        self.useful = False
