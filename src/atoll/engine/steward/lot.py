"""A parking lot: sandboxes that were made ahead, and wait for whoever wants one like them.

Each is a name in a directory, beside others that are alike: `ID.making` until it is ready, `ID` as long as it can be
had. Who removes the name has it. Its steward waits for one who says so, for as long as its lifetime was, or until its
box is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

LOOK = 5.0
"""How often one that is parked looks whether anybody could still want it, in seconds."""
MAKING = ".making"
_BIRTH = 300.0


def offer(entry: str) -> None:
    """It can be had from now on. Raises OSError: its place is gone."""
    os.rename(entry + MAKING, entry)


def leave(entry: str) -> None:
    """It cannot be had any more."""
    for name in (entry, entry + MAKING):
        with contextlib.suppress(OSError):
            os.unlink(name)


class Lot:
    """Those of one kind. Nothing is made before it is needed."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def take(self) -> Iterator[str]:
        """Names that are the caller's now, one after the other; behind some there may be nobody any more."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return
        for name in names:
            if name.endswith(MAKING):
                continue
            try:
                os.unlink(f"{self.directory}/{name}")
            except OSError:
                continue  # somebody else was faster
            yield name

    def place(self, name: str) -> str:
        """Where one is told of that is about to be made."""
        path = f"{self.directory}/{name}"
        with open(path + MAKING, "x", encoding="ascii"):
            return path

    @contextlib.contextmanager
    def filling(self) -> Iterator[int]:
        """How many there are, and are being made; nobody else makes any meanwhile. Raises OSError."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield sum(map(self._counts, os.listdir(fd)))
        finally:
            os.close(fd)

    def _counts(self, name: str) -> bool:
        if not name.endswith(MAKING):
            return True
        path = f"{self.directory}/{name}"
        try:
            if time.time() - os.stat(path).st_mtime < _BIRTH:
                return True
            os.unlink(path)  # of one that was killed
        except OSError:
            pass  # it is ready, or gone
        return False
