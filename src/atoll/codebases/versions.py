"""The versions of a codebase: made beside each other, current in one step, removed when nobody uses them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import FileMissing, StoreError
from ..types import Codebase
from . import durable, locks, manifest, records, trees
from .blobs import Blobs
from .drafts import Drafts
from .manifest import Entries, Entry


class Use(NamedTuple):
    """A version that is kept while `descriptor` is open, which is the caller's to close."""

    id: str
    version: int
    directory: str
    tree: str
    descriptor: int


class Versions:
    """The versions of one codebase. All methods raise OSError where the disk refuses."""

    def __init__(self, home: str, id: str) -> None:
        self.directory = f"{home}/{id}"
        self._id = id
        self._drafts = Drafts(home)

    def place(self, version: int) -> str:
        return f"{self.directory}/versions/{version}"

    def current(self) -> Codebase:
        """Raises CodebaseNotFound when it was deleted."""
        found = records.load(self.directory)
        if found is None:
            raise records.not_found(self._id)
        return found

    def use(self, version: int | None = None) -> Use:
        """Keep a version, or the current one.

        Raises:
            CodebaseNotFound: the codebase was deleted.
            FileMissing: that version is not there, or no more.
        """
        while True:
            chosen = self.current().version if version is None else version
            directory = self.place(chosen)
            try:
                fd = locks.in_use(directory)
            except FileNotFoundError:
                if version is None and self.current().version != chosen:
                    continue  # a newer one became current, and the old one was removed
                raise self._missing(chosen) from None
            return Use(self._id, chosen, directory, f"{directory}/tree", fd)

    @contextlib.contextmanager
    def using(self, version: int | None = None) -> Iterator[Use]:
        """As `use`, for the time of a `with` block."""
        use = self.use(version)
        try:
            yield use
        finally:
            os.close(use.descriptor)

    def entries(self, version: int | None = None) -> tuple[int, Entries]:
        """A version's number and what is in it. Raises as `use` does."""
        with self.using(version) as use:
            return use.version, manifest.load(use.directory)

    @contextlib.contextmanager
    def changing(self) -> Iterator[Codebase]:
        """Nobody else makes a version current meanwhile. Raises CodebaseNotFound."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locks.held(f"{self.directory}/lock"))
            except FileNotFoundError:
                raise records.not_found(self._id) from None
            yield self.current()

    def publish(self, before: Codebase, entries: Entries, blobs: Blobs, now: float) -> Codebase:
        """Make a tree the next version, inside `changing`. Either all of it is so afterwards, or nothing."""
        version = before.version + 1
        with self._drafts.new() as draft:
            build(draft, entries, blobs, f"{self.place(before.version)}/tree")
            target = self.place(version)
            if os.path.lexists(target):
                # Somebody was killed before it became current.
                self._drafts.retire(target)
            os.rename(draft, target)
        durable.flush_names(f"{self.directory}/versions")
        files, size = manifest.totals(entries)
        after = before._replace(version=version, files=files, size=size, updated=now)
        records.save(self.directory, after)
        return after

    def collect(self) -> set[Entry]:
        """Take away the versions that are neither current nor used; gives what only they had.

        `Drafts.sweep` removes them afterwards.
        """
        gone: set[Entry] = set()
        with contextlib.suppress(FileNotFoundError), locks.held(f"{self.directory}/lock"):
            found = records.load(self.directory)
            records.sweep(self.directory)
            for name in os.listdir(f"{self.directory}/versions"):
                if (found is None or name != str(found.version)) and not self.pins(name):
                    gone.update(self._retire(f"{self.directory}/versions/{name}"))
            if gone and found is not None:
                gone.difference_update(manifest.load(self.place(found.version)).values())
            if found is None and not os.listdir(f"{self.directory}/versions"):
                self._drafts.retire(self.directory)
        return gone

    def pins(self, version: str) -> list[str]:
        """Who has pinned a version."""
        try:
            names = os.listdir(f"{self.directory}/pins")
        except FileNotFoundError:
            return []
        return [name.partition(".")[2] for name in names if name.partition(".")[0] == version]

    def pin(self, version: int, user: str) -> None:
        """Keep a version until `unpin`, whatever ends meanwhile. Do it while the version is in use."""
        os.makedirs(f"{self.directory}/pins", mode=0o700, exist_ok=True)
        os.close(os.open(f"{self.directory}/pins/{version}.{user}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def unpin(self, version: int, user: str) -> None:
        """Doing so twice is harmless."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.directory}/pins/{version}.{user}")

    def _retire(self, directory: str) -> list[Entry]:
        """Take a version away unless somebody uses it."""
        fd = locks.open_directory(directory)
        try:
            if not locks.try_alone(fd):
                return []
            try:
                entries = list(manifest.load(directory).values())
            except (FileNotFoundError, StoreError):
                entries = []
            self._drafts.retire(directory)
            return entries
        finally:
            os.close(fd)

    def _missing(self, version: int) -> FileMissing:
        try:
            there = sorted(int(name) for name in os.listdir(f"{self.directory}/versions"))
        except FileNotFoundError:
            there = []
        return FileMissing(
            f"The codebase {self._id} has no version {version}, or no more; there is {', '.join(map(str, there))}."
        )


def build(draft: str, entries: Entries, blobs: Blobs, spare: str | None = None) -> None:
    """Make what a version's directory holds, and have it on the disk. `spare` is a tree for what was lost.

    Raises:
        StoreError: a file that should be stored is not.
        OSError: the disk refuses.
    """
    try:
        trees.build(f"{draft}/tree", entries, blobs, spare=spare)
    except FileNotFoundError as error:
        raise StoreError(
            f"The store of codebases has lost a file: {error.filename}.",
            hint="Upload the directory again.",
        ) from error
    manifest.save(draft, entries)
    os.chmod(draft, 0o755)  # noqa: S103 - the sandbox's user walks through it; what is above is private
    durable.flush_tree(draft, [*blobs.unsure, f"{draft}/{manifest.NAME}"])
