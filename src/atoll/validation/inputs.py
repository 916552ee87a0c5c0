"""What a job is given, as one digest: every path of its source with mode and content, and its own files."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import NamedTuple

from ..codebases.beneath import Descent
from ..codebases.walking import Stamp, Walk, stamp_of, walk
from ..errors import InvalidInput
from ..policy.ignores import Ignores
from ..policy.text import short
from .canonical import digest_of
from .jobs import Job

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20


class Inputs(NamedTuple):
    """The digest, and what tells cheaply whether the source has been written to since."""

    digest: str
    stamps: dict[str, Stamp]
    entries: dict[str, tuple[str, int, str]]


def measure(job: Job) -> Inputs:
    """Of a checked job, read whole.

    Raises:
        InvalidInput: the source is not there, may not be read, or changes while it is read.
    """
    own = {path: hashlib.sha256(data).hexdigest() for path, data in job.files.items()}  # type: ignore[arg-type]
    stamps: dict[str, Stamp] = {}
    entries: dict[str, tuple[str, int, str]] = {}
    if job.source is not None:
        stamps, entries = _measure_tree(str(job.source), job)
    tree = [[_text(path), *entry] for path, entry in sorted(entries.items())] if job.source is not None else None
    return Inputs(digest_of({"source": tree, "files": own, "packages": list(job.packages)}), stamps, entries)


def changed(job: Job, before: Inputs) -> str | None:
    """Which path of the source was written to since, if one was. Reads no contents."""
    if job.source is None:
        return None
    found = _walk(str(job.source), job)
    for path, stamp in found.stamps.items():
        if before.stamps.get(path) != stamp:
            return path
    gone = before.stamps.keys() - found.stamps.keys()
    if gone:
        return min(gone)
    differing = (
        _others(found).items() ^ {path: each for path, each in before.entries.items() if each[0] != "file"}.items()
    )
    return min(path for path, _ in differing) if differing else None


def _measure_tree(source: str, job: Job) -> tuple[dict[str, Stamp], dict[str, tuple[str, int, str]]]:
    found = _walk(source, job)
    entries = _others(found)
    root = _open(source)
    try:
        with Descent(root) as descent:
            for path, stamp in sorted(found.stamps.items()):
                directory, _, name = path.rpartition("/")
                entries[path] = ("file", stamp.mode, _hash(descent.open(directory), name, stamp))
    except OSError as error:
        raise InvalidInput(f"The source {short(source)} cannot be read: {error.strerror} ({short(path)}).") from error
    finally:
        os.close(root)
    return found.stamps, entries


def _walk(source: str, job: Job) -> Walk:
    root = _open(source)
    try:
        found = walk(root, Ignores(job.ignore).ignored if job.ignore else None)
    except OSError as error:
        raise InvalidInput(f"The source {short(source)} cannot be read: {error.strerror}.") from error
    finally:
        os.close(root)
    if found.refused:
        raise InvalidInput(
            f"In the source {short(source)}, {short(found.refused[0])} may not be read; ignore= leaves it out."
        )
    return found


def _open(source: str) -> int:
    try:
        return os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(f"The source {short(source)} cannot be opened: {error.strerror}.") from error


def _others(found: Walk) -> dict[str, tuple[str, int, str]]:
    """Directories and links; of these the mode means nothing."""
    return {path: (entry.kind, entry.mode, entry.content) for path, entry in found.entries.items()}


def _hash(directory: int, name: str, stamp: Stamp) -> str:
    fd = os.open(name, _READ, dir_fd=directory)
    try:
        digest = hashlib.sha256()
        while piece := os.read(fd, _PIECE):
            digest.update(piece)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or stamp_of(status) != stamp:
            raise InvalidInput(f"{short(name)} changes while it is read; run the job when nobody writes to its source.")
        return digest.hexdigest()
    finally:
        os.close(fd)


def _text(path: str) -> str:
    """A path as JSON takes it, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
