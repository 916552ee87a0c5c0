"""All codebases of this user: blocking, safe to use from many threads and processes at once.

`atoll.Codebases` and `atoll.AsyncCodebases` speak to it; drivers and the review gate use it as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ..errors import FileError, FileMissing, InvalidInput, IsDirectory, NotDirectory
from ..home import state_dir
from ..policy.codebases import check_codebase, check_codebase_name, check_owner, check_relative
from ..policy.text import short
from ..types import Codebase, FileInfo, Transfer, Upload
from . import durable, locks, manifest, records, tidying
from .beneath import open_below
from .blobs import Blobs
from .drafts import Drafts
from .incoming import Incoming, read_directory
from .intake import Progress, explained
from .manifest import Entries, Entry
from .merging import below, merged
from .publishing import publish
from .stage import Stage
from .versions import Use, Versions, build

Path: TypeAlias = "str | os.PathLike[str]"
_FILE_MODE = 0o644


class Shelf:
    """Every method may raise StoreError, and FileError where a disk refuses.

    Those that take a codebase raise CodebaseNotFound, and InvalidInput for words that may mean several.
    """

    def __init__(self, state: str | None = None) -> None:
        self.home = f"{state or state_dir()}/codebases"

    def create(
        self,
        name: str,
        path: Path | None = None,
        *,
        owner: str | None = None,
        ignore: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> Codebase:
        """A new codebase, empty as version 0, or with what is in a directory as version 1.

        Raises:
            InvalidInput: the owner has one of this name, or the name or a pattern is wrong.
            FileError: as `upload`.
        """
        check_codebase_name(name)
        owner = check_owner(records.this_user() if owner is None else owner)
        with self._making() as blobs:
            self._check_free(owner, name)
            incoming = Incoming({}, ())
            if path is not None:
                incoming = read_directory(self.home, path, ignore, blobs, {}, progress)
            entries = manifest.ordered(incoming.entries.items())
            now = time.time()
            totals = manifest.totals(entries)
            made = Codebase(records.new_id(), name, owner, 0 if path is None else 1, *totals, now, now)
            with Drafts(self.home).new() as draft:
                first = f"{draft}/versions/{made.version}"
                os.makedirs(first, mode=0o700)
                build(first, entries, blobs)
                records.save(draft, made)
                with locks.held(f"{self.home}/lock"):
                    self._check_free(owner, name)
                    os.rename(draft, f"{self.home}/{made.id}")
                    durable.flush(self.home)
        return made

    def upload(
        self,
        codebase: str | Codebase,
        path: Path,
        *,
        ignore: Iterable[str] = (),
        delete: bool = True,
        at: str = "",
        progress: Progress | None = None,
    ) -> Upload:
        """Make what is in a directory the next version, if it differs from the current one.

        Raises:
            FileDenied: some may not be read; they are named, and nothing was uploaded.
            FileError: a file changes each time that it is read, or something is in the way of `at`.
            InvalidInput: `path`, `at` or a pattern is none.
        """
        versions = self._versions(codebase)
        at = check_relative(at, "at") if at else ""
        with self._making() as blobs:
            version, base = versions.entries()
            incoming = read_directory(self.home, path, ignore, blobs, below(base, at), progress)
            done = _change(versions, blobs, incoming, (version, base), at=at, delete=delete)
        self._tidy(versions, done)
        return done

    def write(self, codebase: str | Codebase, path: str, data: bytes) -> Upload:
        """Make a version in which one file is new, or has another content; directories above it are made.

        Raises:
            IsDirectory, NotDirectory: something is in the way.
        """
        versions = self._versions(codebase)
        parent, _, name = check_relative(path).rpartition("/")
        with self._making() as blobs:
            version, base = versions.entries()
            before = base.get(path)
            mode = before.mode if before is not None and before.kind == "file" else _FILE_MODE
            entry = blobs.put(Entry("file", mode, 0, time.time_ns()), data, before)
            done = _change(versions, blobs, Incoming({name: entry}, ()), (version, base), at=parent, delete=False)
        self._tidy(versions, done)
        return done._replace(digest=entry.content)

    def list(self, owner: str | None = None) -> builtins.list[Codebase]:
        """All of them, or those of an owner, newest first."""
        return [each for each in records.listing(self.home) if owner in (None, each.owner)]

    def get(self, codebase: str | Codebase) -> Codebase:
        """What a codebase is now."""
        return records.resolve(self.home, codebase)

    def delete(self, codebase: str | Codebase) -> Codebase:
        """Remove a codebase. Sandboxes that use a version keep its files until they end. Gives what it was."""
        versions = self._versions(codebase)
        with explained(self.home):
            with versions.changing() as found:
                records.remove(versions.directory)
            tidying.tidy(self.home, versions)
        return found

    def files(
        self, codebase: str | Codebase, path: str = "", *, recursive: bool = True, version: int | None = None
    ) -> builtins.list[FileInfo]:
        """What is in a codebase, or in a directory of it, with paths relative to the codebase.

        Raises:
            FileMissing: there is no such version, or no more, or no such directory in it.
            NotDirectory: the path is no directory.
        """
        within = check_relative(path) if path else ""
        with explained(self.home):
            entries = self._versions(codebase).entries(version)[1]
        if within:
            _check_directory(within, entries.get(within))
        begin = f"{within}/" if within else ""
        return [
            _info(name, entry)
            for name, entry in entries.items()
            if name.startswith(begin) and (recursive or "/" not in name[len(begin) :])
        ]

    def read(self, codebase: str | Codebase, path: str) -> bytes:
        """The content of a file of the current version.

        Raises:
            FileMissing, IsDirectory, NotDirectory: there is no such file.
            FileError: it is a symbolic link, or a link is on the way; links are never followed.
        """
        check_relative(path)
        with explained(path), self._versions(codebase).using() as use:
            return _read(use.tree, path)

    def download(
        self,
        codebase: str | Codebase,
        path: Path,
        *,
        version: int | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Transfer:
        """Write a version, or the current one, to a directory; other files in it stay.

        Raises:
            FileMissing: there is no such version, or no more.
            FileError: the directory is not empty and `overwrite` is False, or something is in the way.
        """
        from .landing import land

        with self._versions(codebase).using(version) as use:
            return land(use.tree, manifest.load(use.directory), path, overwrite=overwrite, progress=progress)

    def use(self, codebase: str | Codebase, version: int | None = None) -> Use:
        """Keep a version, or the current one, while the descriptor in the answer is open.

        One that is named by its id and number, and that somebody uses, is there even when the codebase was deleted.

        Raises:
            FileMissing: there is no such version, or no more.
        """
        with explained(self.home):
            named = Versions(self.home, check_codebase(codebase))
            if version is not None and os.path.isdir(named.place(version)):
                return named.use(version)
            return self._versions(codebase).use(version)

    def entries(self, codebase: str | Codebase, version: int) -> Entries:
        """What is in a version. Raises FileMissing: there is no such version, or no more."""
        with explained(self.home):
            return self._versions(codebase).entries(version)[1]

    @contextlib.contextmanager
    def stage_version(self, codebase: str | Codebase, touching: Iterable[str] = ()) -> Iterator[Stage]:
        """A private copy of the current version, to be changed by renaming into it, and committed.

        Its files are shared with other versions: they must be replaced, and not written to or given another mode.
        Those in `touching` are copies, and everything may be done to them.
        """
        versions = self._versions(codebase)
        with explained(self.home), Drafts(self.home).new() as draft:
            with self._making() as blobs:
                stage = Stage(self.home, versions, f"{draft}/tree", frozenset(touching), blobs)
            yield stage
        if stage.done is not None:
            self._tidy(versions, stage.done)

    def pin(self, use: Use, user: str) -> None:
        """Keep a version that is in use for `user` until `unpin`, also while no process runs."""
        with explained(self.home):
            Versions(self.home, use.id).pin(use.version, user)

    def unpin(self, id: str, version: int, user: str) -> None:
        """Doing so twice is harmless, and so is it when the codebase is gone."""
        with explained(self.home):
            Versions(self.home, id).unpin(version, user)

    def _versions(self, codebase: str | Codebase) -> Versions:
        return Versions(self.home, self.get(codebase).id)

    @contextlib.contextmanager
    def _making(self) -> Iterator[Blobs]:
        """Around what stores files."""
        with explained(self.home):
            os.makedirs(self.home, mode=0o700, exist_ok=True)
            tidying.settle(self.home)
            blobs = Blobs(self.home)
            with blobs.storing():
                yield blobs

    def _tidy(self, versions: Versions, done: Upload) -> None:
        if done.added or done.changed or done.removed:
            with explained(self.home):
                tidying.tidy(self.home, versions)

    def _check_free(self, owner: str, name: str) -> None:
        for each in self.list(owner):
            if each.name == name:
                raise InvalidInput(
                    f"{owner} has a codebase {name!r} already: {each.id}.", hint="Upload to it, or choose another name."
                )


def _change(
    versions: Versions, blobs: Blobs, incoming: Incoming, known: tuple[int, Entries], *, at: str, delete: bool
) -> Upload:
    """Put a tree into the current version, whichever that is by now; `known` is one of them, with what is in it."""
    size = manifest.totals(incoming.entries)[1]
    with versions.changing() as before:
        version, base = known
        if version != before.version:
            base = manifest.load(versions.place(before.version))
        if delete and not at and incoming.entries == base:
            return Upload(before.version, 0, 0, 0, len(base), blobs.written, incoming.skipped, size)
        entries = merged(base, incoming.entries, at=at, delete=delete, now=time.time_ns())
        return publish(versions, before, base, entries, blobs)._replace(skipped=incoming.skipped, size=size)


def _check_directory(path: str, entry: Entry | None) -> None:
    if entry is None:
        raise FileMissing(f"There is no {short(path)} in the codebase.", errno=errno.ENOENT, path=path)
    if entry.kind != "directory":
        raise NotDirectory(f"{short(path)} is no directory.", errno=errno.ENOTDIR, path=path)


def _info(path: str, entry: Entry) -> FileInfo:
    target = entry.content if entry.kind == "symlink" else None
    return FileInfo(path, path.rpartition("/")[2], entry.kind, entry.size, entry.mode, entry.mtime / 1e9, target)


def _read(tree: str, path: str) -> bytes:
    parent, _, name = path.rpartition("/")
    root = locks.open_directory(tree)
    try:
        directory = open_below(root, parent)
    finally:
        os.close(root)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise FileError(
            f"{short(path)} is a symbolic link, which is not followed.", errno=errno.ELOOP, path=path
        ) from None
    finally:
        os.close(directory)
    with open(fd, "rb", buffering=0) as file:
        if os.path.isdir(fd):
            raise IsDirectory(f"{short(path)} is a directory.", errno=errno.EISDIR, path=path)
        return file.readall()
