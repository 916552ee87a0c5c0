"""A directory of the host and the level of everything in it, as data and as a drawing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..policy.ignores import Ignores
from ..policy.rules import LEVELS, Matcher
from ..types import Level, PathRule
from .output import paint

COLOURS = {"write": "green", "read": "cyan", "view": "yellow", "none": "red", "ignored": "faint"}
_WIDTH = max(map(len, COLOURS)) + 1
_MARKS = {"directory": "/", "link": "@", "file": ""}


class Entry(NamedTuple):
    """Something in the tree. `trouble` says why a directory could not be listed."""

    path: str
    kind: str
    ignored: bool = False
    trouble: str = ""

    @property
    def depth(self) -> int:
        return self.path.count("/") + 1 if self.path else 0

    @property
    def directory(self) -> bool:
        return self.kind == "directory"


class Survey(NamedTuple):
    """Everything that is there, each before what is in it, and the levels of all that is not ignored."""

    entries: list[Entry]
    levels: dict[str, Level]

    def word(self, entry: Entry) -> str:
        return "ignored" if entry.ignored else self.levels[entry.path]

    def counts(self) -> dict[str, int]:
        """How many have each level, and how many are ignored, which counts a directory as one."""
        found = dict.fromkeys([*reversed(LEVELS), "ignored"], 0)
        for entry in self.entries[1:]:
            found[self.word(entry)] += 1
        return found


def survey(top: str, matcher: Matcher, ignores: Ignores) -> Survey:
    """Look at all of `top`. Symbolic links are not followed. Raises OSError if `top` itself cannot be listed."""
    os.scandir(top).close()
    entries = list(_walk(top, ignores))
    levels = matcher.plan_levels((entry.path, entry.directory) for entry in entries if not entry.ignored)
    return Survey(entries, levels)


def _walk(top: str, ignores: Ignores) -> Iterator[Entry]:
    waiting = [Entry("", "directory")]
    while waiting:
        entry = waiting.pop()
        if entry.directory and not entry.ignored:
            try:
                with os.scandir(os.path.join(top, entry.path)) as found:
                    inside = [_entry(entry.path, each, ignores) for each in found]
            except OSError as error:
                entry = entry._replace(trouble=error.strerror or str(error))
            else:
                waiting += sorted(inside, reverse=True)
        yield entry


def _entry(above: str, found: os.DirEntry[str], ignores: Ignores) -> Entry:
    path = f"{above}/{found.name}" if above else found.name
    kind = "file"
    if found.is_symlink():
        kind = "link"
    elif found.is_dir(follow_symlinks=False):
        kind = "directory"
    return Entry(path, kind, ignores.ignored(path, directory=kind == "directory"))


def readable(name: str) -> str:
    """A name that does nothing to a terminal: in quotes, with escapes, if it holds anything unusual."""
    return name if name.isprintable() else repr(name)


def drawn(found: Survey, name: str, depth: int | None, *, colours: bool) -> Iterator[str]:
    """The lines of a tree. What is below a hidden directory, or deeper than `depth`, is counted instead."""
    shown = list(_shown(found, depth))
    for (entry, below), branch in zip(shown, _branches([entry.depth for entry, _ in shown]), strict=True):
        word = found.word(entry)
        label = readable(entry.path.rpartition("/")[2]) + _MARKS[entry.kind] if entry.path else name
        notes = [f"{below} below{', all hidden' if word == 'none' else ''}"] if below else []
        notes += [f"cannot be listed: {entry.trouble}"] if entry.trouble else []
        line = paint(word.ljust(_WIDTH), COLOURS[word], wanted=colours) + branch + label
        yield line + paint(f"  ({'; '.join(notes)})", "faint", wanted=colours) if notes else line


def _shown(found: Survey, depth: int | None) -> Iterator[tuple[Entry, int]]:
    """The entries to draw, each with the number of those that are left out below it."""
    last: Entry | None = None
    left_out = 0
    limit = len(found.entries) if depth is None else depth
    for entry in found.entries:
        if last is not None and entry.depth > last.depth and (last.depth >= limit or found.word(last) == "none"):
            left_out += 1
            continue
        if last is not None:
            yield last, left_out
        last, left_out = entry, 0
    if last is not None:
        yield last, left_out


def _branches(depths: list[int]) -> list[str]:
    """The drawing before each name, for entries in order of the walk."""
    found = []
    continues: list[bool] = []  # for each depth, whether a sibling follows
    for depth in reversed(depths):
        follows = [*continues[1 : depth + 1], *[False] * (depth - len(continues) + 1)][:depth]
        if depth:
            stem = "".join("│   " if each else "    " for each in follows[:-1])
            found.append(f"{stem}{'├── ' if follows[-1] else '└── '}")
        else:
            found.append("")
        continues = [False, *follows[:-1], True] if depth else [True]
    return found[::-1]


def unused(rules: Iterable[PathRule], matcher: Matcher, found: Survey) -> Iterator[str]:
    """A sentence on each of `rules` that decides about nothing here."""
    paths = [entry.path for entry in found.entries if not entry.ignored]
    won = {matcher.winner(path) for path in paths}
    for rule in rules:
        if rule in won:
            continue
        alone = Matcher([rule])
        beaten = [path for path in paths if alone.winner(path)]
        if not beaten:
            yield f"The rule {rule.pattern!r} ({rule.level}) matches nothing here."
            continue
        winner = matcher.winner(beaten[0]) or rule
        yield (
            f"The rule {rule.pattern!r} ({rule.level}) matches {counted(len(beaten))} and decides about none: for "
            f"{readable(beaten[0] or '/')} {winner.pattern!r} ({winner.level}) wins."
        )


def counted(count: int) -> str:
    return "1 path" if count == 1 else f"{count} paths"
