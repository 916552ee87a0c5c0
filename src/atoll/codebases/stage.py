"""A private copy of a version, which becomes the next version, or nothing."""

from __future__ import annotations

import os

from ..errors import StoreError
from ..policy.text import short
from ..types import Upload
from . import locks, trees
from .blobs import Blobs
from .intake import Source, explained, take_in
from .manifest import Entries, ordered
from .publishing import publish
from .versions import Versions
from .walking import Stamp, Walk, walk


class MovedOn(Exception):
    """The codebase has another version than the one that was expected. Never leaves atoll."""

    def __init__(self, current: int) -> None:
        super().__init__(current)
        self.current = current


class Stage:
    """`path` is a tree to be changed; `version` is the one that it is a copy of. `done` says what `commit` did.

    Made inside `blobs.storing()`.
    """

    def __init__(self, home: str, versions: Versions, path: str, touching: frozenset[str], blobs: Blobs) -> None:
        self.path = path
        self.done: Upload | None = None
        self._home = home
        self._versions = versions
        self.version, self._base = versions.entries()
        trees.build(path, self._base, blobs, touching, f"{versions.place(self.version)}/tree")
        self._unsure = blobs.unsure
        self._shared = {each: stamp for each, stamp in _looked_at(path).stamps.items() if each not in touching}

    def commit(self, expected_version: int) -> Upload:
        """Make the tree, as it is now, the next version, unless it is like the current one.

        Raises:
            MovedOn: somebody else made one meanwhile; nothing was done.
            StoreError: a shared file was written to in place.
            FileError: something in it cannot be read, or the disk refuses.
        """
        blobs = Blobs(self._home)
        blobs.unsure += self._unsure
        with explained(self.path), blobs.storing():
            self._check(self._versions.current().version, expected_version)
            root = locks.open_directory(self.path)
            try:
                found = walk(root)
                self._check_shared(found)
                known = _Known(self._shared, self._base)
                entries = take_in(Source(root, self.path, found), blobs, known, self._base)
            finally:
                os.close(root)
            with self._versions.changing() as before:
                self._check(before.version, expected_version)
                self.done = publish(self._versions, before, self._base, ordered(entries.items()), blobs)
        return self.done._replace(skipped=tuple(sorted(found.skipped)))

    def _check(self, current: int, expected: int) -> None:
        if current != expected or expected != self.version:
            raise MovedOn(current)

    def _check_shared(self, found: Walk) -> None:
        """A file that other versions have as well must be as it was, or another one."""
        for path, stamp in found.stamps.items():
            known = self._shared.get(path)
            if known is None or known.inode != stamp.inode:
                continue
            if not _is_like(known, stamp) or stamp.mode != self._base[path].mode:
                raise StoreError(
                    f"{short(path)} was changed in place, and with it other versions of the codebase.",
                    hint="This is a mistake in atoll; please report it, and upload the file again.",
                )


def _looked_at(path: str) -> Walk:
    root = locks.open_directory(path)
    try:
        return walk(root)
    finally:
        os.close(root)


def _is_like(one: Stamp, other: Stamp) -> bool:
    """Others gain and lose links to a shared file meanwhile, which changes nothing but its ctime."""
    return one._replace(ctime=0) == other._replace(ctime=0)


class _Known:
    """The digests of files that are what they were when the stage was made."""

    def __init__(self, shared: dict[str, Stamp], base: Entries) -> None:
        self._shared = shared
        self._base = base

    def digest(self, path: str, stamp: Stamp) -> str | None:
        known = self._shared.get(path)
        return self._base[path].content if known is not None and _is_like(known, stamp) else None

    def note(self, path: str, stamp: Stamp, digest: str, read_at: int) -> None:
        """Nobody reads this tree again."""
