"""Where the snapshots of a driver's sandboxes are kept: a directory each, with the files and a manifest.

It takes its name when it is whole. Who reads one holds its directory's lock shared, who removes it holds it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...errors import InvalidInput, SnapshotNotFound
from ..removal import remove_tree
from .wall import FILES

_MANIFEST = "manifest"
_DRAFT = ".draft-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Draft(NamedTuple):
    """A snapshot that is not whole yet; who dies over it leaves it to be swept up."""

    path: str
    lock: int

    @property
    def files(self) -> str:
        """Where the copy goes; not there yet."""
        return f"{self.path}/{FILES}"

    def close(self) -> None:
        """Remove it, unless it was published. May block."""
        if os.path.lexists(self.path):
            remove_tree(self.path)
        os.close(self.lock)


class Shelf:
    """The snapshots in one directory, which is made when it is first needed. Every method may block."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def draft(self) -> Draft:
        """A new directory to copy files into. To be closed."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._sweep()
        path = f"{self._directory}/{_DRAFT}{os.urandom(8).hex()}"
        os.mkdir(path, 0o700)
        fd = os.open(path, _FOLDER)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return Draft(path, fd)

    def check_free(self, name: str) -> None:
        """Raises InvalidInput: there is a snapshot of that name."""
        if os.path.lexists(self._path(name)):
            raise InvalidInput(f"There is already a snapshot {name!r}; delete it first.")

    def publish(self, draft: Draft, name: str, manifest: Mapping[str, Any]) -> None:
        """Raises InvalidInput: there is a snapshot of that name."""
        with open(f"{draft.path}/{_MANIFEST}", "x", encoding="utf-8") as file:
            json.dump({**manifest, "name": name}, file)
        try:
            os.rename(draft.path, self._path(name))
        except OSError:
            self.check_free(name)
            raise

    def find(self, name: str) -> dict[str, Any]:
        """What was written down with one. Raises SnapshotNotFound."""
        try:
            with open(f"{self._path(name)}/{_MANIFEST}", encoding="utf-8") as file:
                found = json.load(file)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        if not isinstance(found, dict):
            raise SnapshotNotFound(f"No snapshot has the name {name!r}.", hint="`atoll snapshot list` shows them.")
        return found

    def all(self) -> list[dict[str, Any]]:
        """Newest first."""
        try:
            names = [name for name in os.listdir(self._directory) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            with contextlib.suppress(SnapshotNotFound, ValueError):
                found.append(self.find(name))
        return sorted(found, key=lambda each: float(each.get("created", 0.0)), reverse=True)

    @contextlib.contextmanager
    def used(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The files of one, and what was written down with it; nobody removes it meanwhile. Raises SnapshotNotFound."""
        path = self._path(name)
        try:
            fd = os.open(path, _FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            self.find(name)
            raise
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield f"{path}/{FILES}", self.find(name)
        finally:
            os.close(fd)

    def delete(self, name: str) -> None:
        """Waits for those who use it. Raises SnapshotNotFound."""
        self.find(name)
        path, gone = self._path(name), f"{self._directory}/{_DRAFT}{os.urandom(8).hex()}"
        try:
            fd = os.open(path, _FOLDER)
        except FileNotFoundError:
            return  # somebody else was faster
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, gone)
                remove_tree(gone)
        finally:
            os.close(fd)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _sweep(self) -> None:
        """Remove what those have left who died over it: they hold no lock any more."""
        for name in os.listdir(self._directory):
            if not name.startswith(_DRAFT):
                continue
            path = f"{self._directory}/{name}"
            if ".removing." in name:
                remove_tree(path)  # nobody makes one anew, and two may be at it
                continue
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                fd = os.open(path, _FOLDER)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(path)
                finally:
                    os.close(fd)
