"""Unified diffs of contents, as git and patch read them."""

from __future__ import annotations

from typing import NamedTuple

from .content import Content
from .lines import Block, changed_blocks
from .quoting import quoted

_CONTEXT = 3
_LARGEST_DIFF = 1 << 20
_ALL_DIFFS = 64 << 20
_ALL_LINES = 4_000_000
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


class TextDiff(NamedTuple):
    """`text` is None for what is no text, or too large to be shown."""

    text: str | None
    added: int = 0
    removed: int = 0


NO_TEXT = TextDiff(None)


class Differ:
    """Makes the diffs of one review; all of them together are bounded too."""

    def __init__(self) -> None:
        self._left = _ALL_DIFFS
        self._lines = _ALL_LINES

    def diff(self, path: str, old: Content | None, new: Content | None) -> TextDiff:
        """What happened to a content; None is for one that is not there at all."""
        if not _is_text(old) or not _is_text(new):
            return NO_TEXT
        before, after = _lines(old), _lines(new)
        if not before and not after:
            return TextDiff("")
        self._lines -= len(before) + len(after)
        if self._lines < 0:
            return NO_TEXT
        blocks = changed_blocks(before, after)
        added = sum(block.new_end - block.new_start for block in blocks)
        removed = sum(block.old_end - block.old_start for block in blocks)
        pieces = _hunks(before, after, blocks)
        size = sum(map(len, pieces))
        if size > min(_LARGEST_DIFF, self._left):
            return TextDiff(None, added, removed)
        self._left -= size
        # A byte that is no UTF-8 is shown as one; the text can be printed wherever text can.
        body = b"".join(pieces).decode("utf-8", "backslashreplace")
        return TextDiff(_head(path, old, new) + body if body else "", added, removed)


def _is_text(content: Content | None) -> bool:
    return content is None or (content.data is not None and b"\0" not in content.data)


def _lines(content: Content | None) -> list[bytes]:
    """With their ends. Only a newline ends a line: other signs that could are content."""
    if content is None or content.data is None:
        return []
    lines = content.data.split(b"\n")
    last = lines.pop()
    ended = [line + b"\n" for line in lines]
    return [*ended, last] if last else ended


def _hunks(before: list[bytes], after: list[bytes], blocks: list[Block]) -> list[bytes]:
    pieces: list[bytes] = []
    for group in _grouped(blocks):
        start = max(group[0].old_start - _CONTEXT, 0)
        new_start = group[0].new_start - (group[0].old_start - start)
        end = min(group[-1].old_end + _CONTEXT, len(before))
        new_end = group[-1].new_end + (end - group[-1].old_end)
        pieces.append(f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@\n".encode())
        at = start
        for block in group:
            pieces.extend(_marked(b" ", before[at : block.old_start]))
            pieces.extend(_marked(b"-", before[block.old_start : block.old_end]))
            pieces.extend(_marked(b"+", after[block.new_start : block.new_end]))
            at = block.old_end
        pieces.extend(_marked(b" ", before[at:end]))
    return pieces


def _grouped(blocks: list[Block]) -> list[list[Block]]:
    """Blocks whose contexts touch go into one hunk."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and block.old_start - groups[-1][-1].old_end <= 2 * _CONTEXT:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _marked(mark: bytes, lines: list[bytes]) -> list[bytes]:
    return [mark + line if line.endswith(b"\n") else mark + line + _NO_NEWLINE for line in lines]


def _range(start: int, end: int) -> str:
    """Lines are counted from 1; an empty range names the line before it."""
    size = end - start
    if size == 1:
        return f"{start + 1}"
    return f"{start + 1 if size else start},{size}"


def _head(path: str, old: Content | None, new: Content | None) -> str:
    before = "/dev/null" if old is None else quoted("a/" + path)
    after = "/dev/null" if new is None else quoted("b/" + path)
    return f"--- {_ended(before)}\n+++ {_ended(after)}\n"


def _ended(name: str) -> str:
    """patch takes what follows a space for a date, unless a tab ends the name."""
    return name + "\t" if " " in name else name
