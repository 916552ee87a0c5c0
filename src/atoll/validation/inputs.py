"""What a job is given, as one digest: every path of its source with mode and content, and its own files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from ..codebases.beneath import Descent
from ..codebases.walking import Stamp, Walk, stamp_of, walk
from ..engine.orders import source_directory
from ..errors import InvalidInput
from ..home import state_dir
from ..policy.ignores import Ignores
from ..policy.text import short
from .canonical import digest_of
from .copies import Copy
from .jobs import Job

MOST_BYTES = 4 << 30
MOST_PATHS = 1_000_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20

_Tree = dict[str, tuple[str, int, str]]


def measure(job: Job) -> str:
    """The digest of what a checked job would be given now. Reads all of it.

    Raises:
        InvalidInput: the source is not there, may not be read, or changes while it is read.
    """
    if job.source is None:
        return _digest(job, None)
    return _digest(job, _read_tree(str(job.source), _walk(job), None))


def take(job: Job, place: str) -> str:
    """Copy the source of a checked job into an empty directory; the digest of what the job is given with that copy.

    Each file is read once, and what was read is what is written and what is hashed.

    Raises:
        InvalidInput: as `measure`; or the source is too much to copy, or atoll's own files are in it.
        StoreError: it cannot be written.
    """
    source = str(job.source)
    if os.path.isdir(source):
        source_directory(source, state_dir())
    found = _walk(job)
    _check_amount(source, found)
    copy = Copy(place)
    try:
        copy.lay_out(found.entries)
        tree = _read_tree(source, found, copy)
        copy.finish(found.entries)
    finally:
        copy.close()
    return _digest(job, tree)


def _digest(job: Job, tree: _Tree | None) -> str:
    own = {path: hashlib.sha256(data).hexdigest() for path, data in job.files.items()}  # type: ignore[arg-type]
    listed = None if tree is None else [[_text(path), *entry] for path, entry in sorted(tree.items())]
    return digest_of({"source": listed, "files": own, "packages": list(job.packages)})


def _check_amount(source: str, found: Walk) -> None:
    size = sum(stamp.size for stamp in found.stamps.values())
    if size > MOST_BYTES:
        amount = f"{size / (1 << 30):.1f} GiB in it, and a job has at most {MOST_BYTES >> 30}"
    elif len(found.stamps) + len(found.entries) > MOST_PATHS:
        amount = f"more than {MOST_PATHS} files in it"
    else:
        return
    raise InvalidInput(
        f"The source {short(source)} has {amount}.", hint="ignore= leaves parts of it out; or give a narrower source."
    )


def _read_tree(source: str, found: Walk, copy: Copy | None) -> _Tree:
    """Every path with its kind, mode and content; files are written into the copy, if there is one."""
    tree: _Tree = {path: (entry.kind, entry.mode, _text(entry.content)) for path, entry in found.entries.items()}
    root = _open(source)
    path = ""
    try:
        with Descent(root) as descent:
            for path, stamp in sorted(found.stamps.items()):
                directory, _, name = path.rpartition("/")
                digest = hashlib.sha256()
                pieces = _hashed(descent.open(directory), name, stamp, digest)
                if copy is None:
                    for _ in pieces:
                        pass
                else:
                    copy.write(path, stamp.mode, stamp.mtime, pieces)
                tree[path] = ("file", stamp.mode, digest.hexdigest())
    except OSError as error:
        raise InvalidInput(f"The source {short(source)} cannot be read: {error.strerror} ({short(path)}).") from error
    finally:
        os.close(root)
    return tree


def _hashed(directory: int, name: str, stamp: Stamp, digest: hashlib._Hash) -> Iterator[bytes]:
    """The pieces of a file, each hashed as it passes. Raises OSError, InvalidInput."""
    fd = os.open(name, _READ, dir_fd=directory)
    try:
        left = stamp.size
        # One that grows as fast as it is read would never end.
        while left >= 0 and (piece := os.read(fd, _PIECE)):
            left -= len(piece)
            digest.update(piece)
            yield piece
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or stamp_of(status) != stamp:
            raise InvalidInput(f"{short(name)} changes while it is read; run the job when nobody writes to its source.")
    finally:
        os.close(fd)


def _walk(job: Job) -> Walk:
    source = str(job.source)
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


def _text(path: str) -> str:
    """A name as JSON takes it, whatever bytes it has and whatever this process decodes names by; no two become one."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")
