"""Reading a directory of the host that the caller names."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..errors import NotDirectory
from ..policy.ignores import Ignores, check_ignore
from ..policy.paths import host_path
from ..policy.text import short
from . import walking
from .blobs import Blobs
from .intake import Progress, Source, refusal, take_in
from .manifest import Entries, Entry
from .remembered import Remembered
from .walking import Ignored


class Incoming(NamedTuple):
    """A tree whose files are stored, and what was left out of it because it is no file."""

    entries: Entries
    skipped: tuple[str, ...]


def read_directory(
    home: str,
    path: str | os.PathLike[str],
    ignore: Iterable[str],
    blobs: Blobs,
    base: Mapping[str, Entry],
    progress: Progress | None,
) -> Incoming:
    """Take in a directory; call it inside `blobs.storing()`.

    Args:
        home: where codebases are kept; it is left out, since it would grow while it is read.
        base: what is stored already.

    Raises:
        InvalidInput: the path or a pattern is none.
        FileError: something may not be read or keeps changing; nothing of it is used.
    """
    name = host_path(path, "path")
    ignored = _ignored(ignore)
    try:
        root = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError:
        raise NotDirectory(
            f"{short(name)} is no directory; a single file is for write.", errno=errno.ENOTDIR, path=name
        ) from None
    except OSError as error:
        raise refusal(error, name) from error
    try:
        try:
            walk = walking.walk(root, ignored, _own_places(home))
        except OSError as error:
            raise refusal(error, name) from error
        memory = Remembered(home, name)
        entries = take_in(Source(root, name, walk), blobs, memory, base, progress)
        memory.save()
        return Incoming(entries, tuple(sorted(walk.skipped)))
    finally:
        os.close(root)


def _own_places(home: str) -> frozenset[tuple[int, int]]:
    """atoll's state directory, and where the codebases in it really are."""
    places = (os.stat(path) for path in (home, os.path.dirname(home)))
    return frozenset((status.st_dev, status.st_ino) for status in places)


def _ignored(ignore: Iterable[str]) -> Ignored | None:
    patterns = check_ignore(ignore)
    return Ignores(patterns).ignored if patterns else None
