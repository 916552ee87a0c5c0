"""What a version holds after an upload: the old tree and the new one, put together. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from ..errors import IsDirectory, NotDirectory
from ..policy.text import short
from .manifest import Entries, Entry, ordered

_DIRECTORY_MODE = 0o755


def merged(base: Mapping[str, Entry], new: Mapping[str, Entry], *, at: str, delete: bool, now: int) -> Entries:
    """The tree `base` with `new` put at the path `at`, "" being its root.

    With `delete` nothing else stays below `at`. What is like in both keeps the time that it has in `base`.

    Args:
        now: the time of directories above `at` that are made, in nanoseconds.

    Raises:
        NotDirectory: `at`, or something above it, is a file or a link in `base`.
        IsDirectory: without `delete`, a file would take the place of a whole directory.
    """
    prefix = f"{at}/" if at else ""
    above = {path: _directory(now) for path in (at, *_parents(at)) if path}
    for path in above:
        _check(base.get(path), path, "directory", "so nothing can be put below it")
    placed = {prefix + path: _kept(entry, base.get(prefix + path)) for path, entry in new.items()}
    if delete:
        rest = {path: entry for path, entry in base.items() if at and not path.startswith(prefix)}
    else:
        rest = dict(base)
        for path, entry in placed.items():
            if entry.kind != "directory":
                _check(base.get(path), path, "file", "and would be lost")
    return ordered({**above, **rest, **placed}.items())


def below(entries: Entries, at: str) -> Entries:
    """What is below a directory, with paths relative to it."""
    if not at:
        return entries
    prefix = f"{at}/"
    return {path.removeprefix(prefix): entry for path, entry in entries.items() if path.startswith(prefix)}


def _check(found: Entry | None, path: str, wanted: str, why: str) -> None:
    """Refuse a directory where a file is wanted, and the other way round."""
    if found is None or (found.kind == "directory") == (wanted == "directory"):
        return
    if wanted == "directory":
        raise NotDirectory(f"{short(path)} is no directory in the codebase, {why}.", errno=errno.ENOTDIR, path=path)
    raise IsDirectory(f"{short(path)} is a directory in the codebase, {why}.", errno=errno.EISDIR, path=path)


def _kept(entry: Entry, before: Entry | None) -> Entry:
    """Times of directories change with every file in them, and cost nothing."""
    return before if before is not None and entry.kind != "directory" and entry.is_like(before) else entry


def _directory(now: int) -> Entry:
    return Entry("directory", _DIRECTORY_MODE, 0, now)


def _parents(path: str) -> Iterator[str]:
    """Everything above a path but the root, nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
