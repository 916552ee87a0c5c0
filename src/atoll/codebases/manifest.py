"""What is in a tree: every path with its kind, mode, time and content, as values that can be kept and compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from ..errors import StoreError
from ..home import private

Kind = Literal["file", "directory", "symlink"]

NAME = "manifest.json"
_FORMAT = 1


class Entry(NamedTuple):
    """One path of a tree. `mtime` is in nanoseconds; `content` is a file's SHA-256 or a link's target."""

    kind: Kind
    mode: int
    size: int
    mtime: int
    content: str = ""

    def is_like(self, other: Entry | None) -> bool:
        """Whether they differ in nothing but the time."""
        return (
            other is not None and self.content == other.content and self.mode == other.mode and self.kind == other.kind
        )


# From paths, relative and with "/" between their parts, to what is there. A parent's path comes before its children's.
Entries: TypeAlias = "dict[str, Entry]"


class Difference(NamedTuple):
    """How many paths two trees differ in."""

    added: int
    changed: int
    removed: int
    unchanged: int

    @property
    def is_none(self) -> bool:
        return not (self.added or self.changed or self.removed)


def ordered(entries: Iterable[tuple[str, Entry]]) -> Entries:
    """In the order in which a tree can be made: a path sorts after every beginning of itself."""
    return dict(sorted(entries))


def difference(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Difference:
    added = changed = 0
    for path, entry in new.items():
        before = old.get(path)
        if before is None:
            added += 1
        elif not entry.is_like(before):
            changed += 1
    return Difference(added, changed, len(old) - (len(new) - added), len(new) - added - changed)


def totals(entries: Mapping[str, Entry]) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    sizes = [entry.size for entry in entries.values() if entry.kind == "file"]
    return len(sizes), sum(sizes)


def save(directory: str, entries: Entries) -> None:
    """Raises OSError."""
    with open(f"{directory}/{NAME}", "w", encoding="ascii", opener=private) as file:
        file.write(json.dumps({"format": _FORMAT, "entries": entries}, separators=(",", ":")))


def load(directory: str) -> Entries:
    """What `save` wrote.

    Raises:
        FileNotFoundError: the version is gone.
        StoreError: nobody wrote it so.
    """
    try:
        with open(f"{directory}/{NAME}", "rb") as file:
            value = json.loads(file.read())
        if value["format"] != _FORMAT:
            raise ValueError(f"it has the format {value['format']!r}")
        # Quicker than Entry(*row) a thousand times over, and this is on the way of every upload.
        make = partial(tuple.__new__, Entry)
        return dict(zip(value["entries"], map(make, value["entries"].values()), strict=True))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"The manifest in {directory} cannot be read: {error}.") from error
