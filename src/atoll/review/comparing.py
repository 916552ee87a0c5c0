"""The comparison of what the sandbox sees with the source: the kernel has already interpreted every layer."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..types import Change, Level
from .base import Base
from .candidates import Candidates
from .content import LARGEST_TEXT, UNREADABLE, Allowance, Content, link_content, read_content
from .judging import Judge
from .selection import is_within, parents
from .tree import Tree, type_of
from .unified import NO_TEXT, Differ, TextDiff

# What a hostile or damaged tree may answer; anything else is trouble of our own.
_CLOSED = frozenset((errno.EACCES, errno.EPERM, errno.EIO, errno.EUCLEAN, errno.ENXIO, errno.EOVERFLOW, errno.ESTALE))

_Kind = Literal["added", "modified", "mode"]


class Difference(NamedTuple):
    """A change, and what `stat` said of both sides; `old` is what the sandbox could see of the source."""

    change: Change
    old: os.stat_result | None
    new: os.stat_result | None


class Comparison:
    """Compares two trees path by path.

    Args:
        text: whether to make diffs.
        masked: whether a view may have given the owner of a file the right to read and write it.
    """

    def __init__(self, merged: Tree, source: Tree, judge: Judge, base: Base, *, text: bool, masked: bool) -> None:
        self._merged = merged
        self._source = source
        self._judge = judge
        self._base = base
        self._masked = masked
        self._differ = Differ() if text else None
        self._allowance = Allowance()
        self._named = Candidates()
        self._chosen: frozenset[str] | None = None
        self._found: dict[str, Difference] = {}
        self._done: set[str] = set()
        self._closed: set[str] = set()

    def run(self, candidates: Candidates, wanted: Iterable[str] | None) -> list[Difference]:
        """All differences, by path; with `wanted`, only those at or below one of these paths."""
        self._named = candidates
        self._chosen = None if wanted is None else frozenset(wanted)
        whole = candidates.whole | self._look_at(candidates.paths)
        more = Candidates()
        for path in sorted(whole):
            if not is_within(path, more.whole):
                more.whole.add(path)
                self._expand(path, more)
        self._look_at(more.paths - self._done)
        return self._lasting()

    def _expand(self, path: str, more: Candidates) -> None:
        for tree in (self._source, self._merged):
            try:
                for below, _ in tree.below(path):
                    more.add(below)
            except OSError as error:
                self._close(os.fsdecode(error.filename or path), error)

    def _close(self, path: str, error: OSError) -> None:
        """Nothing is known of a path that cannot be looked at, nor of what is below it."""
        if error.errno not in _CLOSED:
            raise error
        self._closed.add(path)
        if self._is_chosen(path):
            self._found[path] = self._unreadable(path)

    def _is_chosen(self, path: str) -> bool:
        return self._chosen is None or is_within(path, self._chosen)

    def _look_at(self, paths: Iterable[str]) -> set[str]:
        """Compare paths; gives the directories of which the other side has none."""
        lopsided: set[str] = set()
        for path in sorted(paths):
            self._done.add(path)
            if is_within(path, self._closed) or self._judge.is_ignored_above(path):
                continue
            try:
                new, there = self._merged.stat(path), self._source.stat(path)
                if _is_directory(new) != _is_directory(there):
                    lopsided.add(path)
                if self._is_chosen(path):
                    self._compare(path, new, there)
            except OSError as error:
                self._close(path, error)
        return lopsided

    def _compare(self, path: str, new: os.stat_result | None, there: os.stat_result | None) -> None:
        if _is_directory(new) and _is_directory(there) and not self._judge.is_ignored(path, directory=True):
            return
        old = there if there is not None and self._is_seen(path, there) else None
        if new is None:
            found = None if old is None else self._deleted(path, old)
        else:
            level = self._judge.seen(path, _is_directory(new))
            if level == "view" and there is not None and _is_placeholder(new, there):
                return
            found = self._changed(path, level, old, new)
        if found is not None:
            self._found[path] = found

    def _is_seen(self, path: str, there: os.stat_result) -> bool:
        """Whether the sandbox could see it: for a directory, also because of something below it."""
        directory = _is_directory(there)
        if self._judge.seen(path, directory) != "none":
            return True
        if not directory or self._judge.is_ignored(path, directory=True):
            return False
        return any(self._judge.seen(below, inner) != "none" for below, inner in self._source.below(path))

    def _deleted(self, path: str, old: os.stat_result) -> Difference | None:
        if not self._was_removed(path):
            return None
        level = self._judge.seen(path, _is_directory(old))
        text = self._diff(path, self._old_text(path, level, old), None)
        change = Change(path, "deleted", type_of(old.st_mode), stat.S_IMODE(old.st_mode), None, 0, None, text.text,
                        level, text.added, text.removed)  # fmt: skip
        return Difference(change, old, None)

    def _was_removed(self, path: str) -> bool:
        """Whether something that the sandbox has not was removed by it, and not by a change of the source.

        It came into the source later, and the sandbox never saw it; or it was at another place of the source when the
        sandbox renamed a directory, and is no longer there. Then no layer names the place where it is missing.
        """
        if path in self._named.paths:
            return True
        if self._base.complete and self._base.record(path) is None:
            return False
        hidden = False
        for place in (*parents(path), path):
            if not _is_directory(self._merged.stat(place)):
                return hidden or place in self._named.paths
            hidden = hidden or place in self._named.opaque
        return False

    def _changed(self, path: str, level: Level, old: os.stat_result | None, new: os.stat_result) -> Difference | None:
        content = self._new_content(path, new)
        kind = self._kind(path, level, old, new, content)
        if kind is None or (kind != "mode" and self._is_as_it_was(path, new, content)):
            return None
        text = NO_TEXT
        if kind != "mode" and (content is None or content.data is not None):
            text = self._diff(path, None if old is None else self._old_text(path, level, old), content)
        change = Change(
            path,
            kind,
            type_of(new.st_mode),
            None if old is None else stat.S_IMODE(old.st_mode),
            stat.S_IMODE(new.st_mode),
            new.st_size if stat.S_ISREG(new.st_mode) else 0,
            None if content is None else content.digest,
            text.text,
            level,
            text.added,
            text.removed,
        )
        return Difference(change, old, new)

    def _kind(self, path: str, level: Level, old: os.stat_result | None, new: os.stat_result, content: Content | None,
              ) -> _Kind | None:  # fmt: skip
        """What happened, or None for nothing."""
        if old is None:
            return "added"
        if stat.S_IFMT(old.st_mode) != stat.S_IFMT(new.st_mode):
            return "modified"
        if content is None:
            return None if old.st_rdev == new.st_rdev else "modified"
        if stat.S_ISREG(new.st_mode) and old.st_size != new.st_size:
            return "modified"
        if content.digest is None or self._old_content(path, level, old).digest != content.digest:
            return "modified"
        return None if stat.S_ISLNK(new.st_mode) or self._same_mode(old.st_mode, new.st_mode) else "mode"

    def _same_mode(self, old: int, new: int) -> bool:
        before, after = stat.S_IMODE(old), stat.S_IMODE(new)
        return after == before or (self._masked and is_masked(before, after))

    def _is_as_it_was(self, path: str, new: os.stat_result, content: Content | None) -> bool:
        """Whether only the source has moved on: the sandbox has still what it got."""
        record = self._base.record(path)
        if record is None or content is None or content.digest is None:
            return False
        same = record.type == type_of(new.st_mode) and record.digest == content.digest
        return same and (record.type == "symlink" or self._same_mode(record.mode, new.st_mode))

    def _new_content(self, path: str, new: os.stat_result) -> Content | None:
        if stat.S_ISREG(new.st_mode) and not self._allowance.covers(new):
            return UNREADABLE
        return _content(self._merged, path, new)

    def _old_content(self, path: str, level: Level, old: os.stat_result) -> Content:
        """What the source has; nothing that the sandbox may not read, since it may be shown the diff."""
        if level not in ("read", "write"):
            return UNREADABLE
        return _content(self._source, path, old) or UNREADABLE

    def _old_text(self, path: str, level: Level, old: os.stat_result) -> Content | None:
        """As far as it can be shown; None for what has no content."""
        if stat.S_ISREG(old.st_mode) and (self._differ is None or old.st_size > LARGEST_TEXT):
            return UNREADABLE
        return None if _is_directory(old) else self._old_content(path, level, old)

    def _diff(self, path: str, old: Content | None, new: Content | None) -> TextDiff:
        return NO_TEXT if self._differ is None else self._differ.diff(path, old, new)

    def _unreadable(self, path: str) -> Difference:
        level = self._judge.seen(path, directory=False)
        return Difference(Change(path, "modified", "other", None, None, 0, None, None, level), None, None)

    def _lasting(self) -> list[Difference]:
        """Without the directories that stay because something in them does."""
        for path in sorted(self._found, reverse=True):
            difference = self._found[path]
            if difference.new is None and _is_directory(difference.old) and not self._is_emptied(path):
                del self._found[path]
        return [self._found[path] for path in sorted(self._found)]

    def _is_emptied(self, path: str) -> bool:
        try:
            names = self._source.names(path)
        except PermissionError:
            return False
        for name in names:
            inside = self._found.get(f"{path}/{name}")
            if inside is None or inside.new is not None or inside.old is None:
                return False
        return True


def _content(tree: Tree, path: str, found: os.stat_result) -> Content | None:
    """What a file or a link holds; None for anything else."""
    try:
        if stat.S_ISLNK(found.st_mode):
            return link_content(tree.link_target(path))
        if not stat.S_ISREG(found.st_mode):
            return None
        fd = tree.open_file(path)
    except OSError:
        return UNREADABLE
    try:
        return read_content(fd)
    except OSError:
        return UNREADABLE
    finally:
        os.close(fd)


def _is_directory(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_masked(before: int, after: int) -> bool:
    """Whether permission bits are those of the source with what a view gives the owner of a file."""
    return after == before & 0o777 | 0o600


def _is_placeholder(found: os.stat_result, there: os.stat_result) -> bool:
    """A view shows files that may not be read as files without content that nobody may open; and of links only how
    long their targets are."""
    if stat.S_ISLNK(found.st_mode):
        return stat.S_ISLNK(there.st_mode) and found.st_size == there.st_size
    return stat.S_ISREG(found.st_mode) and not stat.S_IMODE(found.st_mode) and not found.st_blocks
