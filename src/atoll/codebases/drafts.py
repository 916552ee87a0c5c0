"""Directories that are being made or removed, each locked by who is at it; what nobody is at is swept away."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from . import locks


class Drafts:
    """All methods raise OSError where the disk refuses."""

    def __init__(self, home: str) -> None:
        self._place = f"{home}/drafts"

    @contextlib.contextmanager
    def new(self) -> Iterator[str]:
        """A directory to make something in. What is left of it afterwards is removed."""
        path, fd = self._make()
        try:
            yield path
        finally:
            try:
                if locks.is_still_at(fd, path):
                    self._remove(path)
            finally:
                os.close(fd)

    def retire(self, path: str) -> str:
        """Take a directory's name away, so that nobody finds it half removed; `sweep` then removes it."""
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        retired = self._name()
        os.rename(path, retired)
        return retired

    def sweep(self) -> int:
        """Remove what nobody is at; how many directories that were."""
        try:
            names = os.listdir(self._place)
        except FileNotFoundError:
            return 0
        return sum(self._sweep(f"{self._place}/{name}") for name in names)

    def _sweep(self, path: str) -> bool:
        try:
            fd = locks.open_directory(path)
        except FileNotFoundError:
            return False
        except PermissionError:
            # A directory from inside a tree that was being removed: nobody makes drafts that are unreadable.
            self._remove(path)
            return True
        try:
            if not locks.try_alone(fd):
                return False
            self._remove(path)
            return True
        finally:
            os.close(fd)

    def _make(self) -> tuple[str, int]:
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        while True:
            path = self._name()
            os.mkdir(path, 0o700)
            try:
                fd = locks.open_directory(path)
            except FileNotFoundError:
                continue
            # Somebody who sweeps may have been faster than the lock.
            if locks.try_alone(fd) and locks.is_still_at(fd, path):
                return path, fd
            os.close(fd)

    def _name(self) -> str:
        return f"{self._place}/{os.urandom(8).hex()}"

    @staticmethod
    def _remove(path: str) -> None:
        from ..engine.removal import remove_tree

        remove_tree(path)
