"""From a directory of the host to entries whose contents are stored: only what is not known is read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from ..errors import FileDenied, FileError, file_error
from ..policy.text import short
from .beneath import open_below
from .blobs import Blobs, Changed
from .manifest import Entries, Entry
from .remembered import now
from .walking import Stamp, Walk, stamp_of

Progress = Callable[[int, int], None]
_TRIES = 5
_NAMED = 5
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Memory(Protocol):
    """What is known of files that were read before."""

    def digest(self, path: str, stamp: Stamp) -> str | None: ...
    def note(self, path: str, stamp: Stamp, digest: str, read_at: int) -> None: ...


class Source(NamedTuple):
    """An open directory, how errors call it, and what was found in it."""

    root: int
    name: str
    walk: Walk


def take_in(
    source: Source, blobs: Blobs, memory: Memory, base: Mapping[str, Entry], progress: Progress | None = None
) -> Entries:
    """The entries of a tree, in any order, each of which `blobs` has now.

    What is like in `base` is taken from there. `progress` is told how many files of how many have been read.

    Raises:
        FileDenied: some may not be read; nothing was stored.
        FileError: one changes each time that it is read, or the disk refuses.
    """
    if source.walk.refused:
        raise _unreadable(source.walk.refused)
    entries = source.walk.entries
    unknown: dict[str, list[str]] = {}
    for path, stamp in source.walk.stamps.items():
        entry = _known(stamp, memory.digest(path, stamp), base.get(path), blobs)
        if entry is None:
            unknown.setdefault(path.rpartition("/")[0], []).append(path)
        else:
            entries[path] = entry
    if unknown:
        _check_readable(source, unknown)
        _read_all(source, unknown, blobs, memory, base, progress)
    return entries


def _known(stamp: Stamp, digest: str | None, before: Entry | None, blobs: Blobs) -> Entry | None:
    """What a file is, if its content is both known and stored."""
    if digest is None:
        return None
    if before is not None and before.content == digest and before.mode == stamp.mode and before.kind == "file":
        return before
    entry = stamp.entry(digest)
    return entry if blobs.has(entry) else None


def _check_readable(source: Source, unknown: Mapping[str, list[str]]) -> None:
    refused = []
    for directory, paths in unknown.items():
        fd = _open(source, directory)
        if fd is None:
            continue
        try:
            for path in paths:
                name = path.rpartition("/")[2]
                if not os.access(name, os.R_OK, dir_fd=fd, effective_ids=True) and _is_at(name, fd):
                    refused.append(path)
        finally:
            os.close(fd)
    if refused:
        raise _unreadable(refused)


def _is_at(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read_all(
    source: Source,
    unknown: Mapping[str, list[str]],
    blobs: Blobs,
    memory: Memory,
    base: Mapping[str, Entry],
    progress: Progress | None,
) -> None:
    entries, count, total = source.walk.entries, 0, sum(map(len, unknown.values()))
    for directory, paths in unknown.items():
        fd = _open(source, directory)
        try:
            for path in paths:
                entry = None if fd is None else _read(source, fd, path, blobs, memory, base.get(path))
                if entry is not None:  # else it vanished after it was seen
                    entries[path] = entry
                count += 1
                if progress is not None:
                    progress(count, total)
        finally:
            if fd is not None:
                os.close(fd)


def _read(
    source: Source, directory: int, path: str, blobs: Blobs, memory: Memory, before: Entry | None
) -> Entry | None:
    """One file, read again when it changes meanwhile; None when it is gone."""
    try:
        for _ in range(_TRIES):
            fd = os.open(path.rpartition("/")[2], _READ, dir_fd=directory)
            try:
                read_at = now()
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    break
                stamp = stamp_of(status)
                entry = _stored(fd, stamp, blobs, before)
                if entry is not None:
                    memory.note(path, stamp, entry.content, read_at)
                    return entry
            finally:
                os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise refusal(error, f"{source.name}/{path}") from error
    raise FileError(
        f"{short(f'{source.name}/{path}')} changes while it is read; upload again when nobody writes to it.",
        errno=errno.EBUSY,
        path=path,
    )


def _stored(fd: int, stamp: Stamp, blobs: Blobs, before: Entry | None) -> Entry | None:
    try:
        entry = blobs.take(fd, stamp, before)
    except Changed:
        return None
    return entry if stamp_of(os.fstat(fd)) == stamp else None


def _open(source: Source, directory: str) -> int | None:
    """A directory that was seen; None when it is gone."""
    try:
        return open_below(source.root, directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(error, f"{source.name}/{directory}") from error


def _unreadable(paths: list[str]) -> FileDenied:
    named = ", ".join(short(path) or "the directory itself" for path in paths[:_NAMED])
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return FileDenied(
        f"Nothing was uploaded, since this may not be read: {named}{more}. "
        "Make it readable, or leave it out with a pattern to ignore.",
        errno=errno.EACCES,
        path=paths[0],
    )


def refusal(error: OSError, path: str) -> FileError:
    """An error of the host as one of atoll's, with the path in it."""
    if isinstance(error, FileError):
        return error
    number = error.errno or errno.EIO
    return file_error(number, f"{os.strerror(number)}: {short(path)}", path)


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Errors of the host as atoll's; `path` is for those that name none."""
    try:
        yield
    except OSError as error:
        raise refusal(
            error, os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else path
        ) from error
