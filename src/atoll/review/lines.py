"""Which lines changed between two texts, in time that no text can stretch.

First what both begin and end with is set aside; then lines that are there once on each side are anchors, as far as they
come in the same order; small rests between anchors are compared exactly, and what would take too long counts as
replaced. So a hostile text gets a coarser answer, never a slow one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

# So many pairs of lines may be looked at for one file, and so many edits sought for between two anchors.
_EFFORT = 2_000_000
_MOST_EDITS = 200


class Block(NamedTuple):
    """Lines `old_start:old_end` became `new_start:new_end`; one of the two may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def changed_blocks(old: list[bytes], new: list[bytes]) -> list[Block]:
    """What differs, in order. Neighbouring blocks have an equal line between them."""
    numbers: dict[bytes, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    return _Comparison(a, b).run()


class _Comparison:
    def __init__(self, a: list[int], b: list[int]) -> None:
        self._a = a
        self._b = b
        self._effort = _EFFORT
        self._blocks: list[Block] = []

    def run(self) -> list[Block]:
        waiting = [Block(0, len(self._a), 0, len(self._b))]
        while waiting:
            part = self._trimmed(waiting.pop())
            if part.old_start == part.old_end and part.new_start == part.new_end:
                continue
            waiting.extend(reversed(self._divided(part)))
        return _joined(self._blocks)

    def _trimmed(self, part: Block) -> Block:
        """Without the lines that both begin and end with."""
        a, b = self._a, self._b
        start, end, new_start, new_end = part
        while start < end and new_start < new_end and a[start] == b[new_start]:
            start, new_start = start + 1, new_start + 1
        while start < end and new_start < new_end and a[end - 1] == b[new_end - 1]:
            end, new_end = end - 1, new_end - 1
        return Block(start, end, new_start, new_end)

    def _divided(self, part: Block) -> list[Block]:
        """Smaller parts to go on with; or none, when the part is settled."""
        old_size, new_size = part.old_end - part.old_start, part.new_end - part.new_start
        self._effort -= old_size + new_size
        if not old_size or not new_size or self._effort < 0:
            self._blocks.append(part)
            return []
        anchors = self._anchors(part)
        if anchors:
            return _between(part, anchors)
        pairs = self._exact(part)
        if pairs is None:
            self._blocks.append(part)
        else:
            self._blocks.extend(gap for gap in _between(part, pairs) if not _is_empty(gap))
        return []

    def _anchors(self, part: Block) -> list[tuple[int, int]]:
        """Pairs of lines that are there once on each side, as many as come in one order."""
        mine = _single(self._a, part.old_start, part.old_end)
        theirs = _single(self._b, part.new_start, part.new_end)
        return _longest_rise([(mine[line], theirs[line]) for line in mine if line in theirs])

    def _exact(self, part: Block) -> list[tuple[int, int]] | None:
        """Pairs of equal lines with the fewest edits between them; None where those would be too many."""
        a, b = self._a, self._b
        old_size, new_size = part.old_end - part.old_start, part.new_end - part.new_start
        reached = {1: 0}
        history: list[dict[int, int]] = []
        for edits in range(min(old_size + new_size, _MOST_EDITS) + 1):
            history.append(reached.copy())
            self._effort -= 4 * edits + 1
            if self._effort < 0:
                return None
            for diagonal in range(-edits, edits + 1, 2):
                x = reached[diagonal + 1] if _from_above(reached, diagonal, edits) else reached[diagonal - 1] + 1
                y = x - diagonal
                before = x
                while x < old_size and y < new_size and a[part.old_start + x] == b[part.new_start + y]:
                    x, y = x + 1, y + 1
                self._effort -= x - before
                reached[diagonal] = x
                if x >= old_size and y >= new_size:
                    return _traced(history, part, old_size, new_size)
        return None


def _from_above(reached: dict[int, int], diagonal: int, edits: int) -> bool:
    """Whether the furthest way to a diagonal comes from the one above it, with a line of the new text."""
    if diagonal in (-edits, edits):
        return diagonal == -edits
    return reached[diagonal - 1] < reached[diagonal + 1]


def _traced(history: list[dict[int, int]], part: Block, x: int, y: int) -> list[tuple[int, int]]:
    """The equal lines on the way that was found, gone back from its end."""
    pairs: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reached = history[edits]
        diagonal = x - y
        above = diagonal + 1 if _from_above(reached, diagonal, edits) else diagonal - 1
        last_x = reached[above]
        last_y = last_x - above
        while x > last_x and y > last_y:
            x, y = x - 1, y - 1
            pairs.append((part.old_start + x, part.new_start + y))
        x, y = last_x, last_y
    return pairs[::-1]


def _single(lines: list[int], start: int, end: int) -> dict[int, int]:
    """Where each line is that is there once."""
    where: dict[int, int] = {}
    for index in range(start, end):
        line = lines[index]
        where[line] = -1 if line in where else index
    return {line: index for line, index in where.items() if index >= 0}


def _longest_rise(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pairs in the order of their first numbers, the most whose second numbers rise too."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, second) in enumerate(pairs):
        place = bisect_left(tops, second)
        tops[place : place + 1] = [second]
        before.append(ends[place - 1] if place else -1)
        ends[place : place + 1] = [index]
    rise: list[tuple[int, int]] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        rise.append(pairs[index])
        index = before[index]
    return rise[::-1]


def _between(part: Block, pairs: list[tuple[int, int]]) -> list[Block]:
    """What lies before, between and after pairs of equal lines."""
    gaps: list[Block] = []
    old, new = part.old_start, part.new_start
    for mine, theirs in pairs:
        gaps.append(Block(old, mine, new, theirs))
        old, new = mine + 1, theirs + 1
    gaps.append(Block(old, part.old_end, new, part.new_end))
    return gaps


def _is_empty(part: Block) -> bool:
    return part.old_start == part.old_end and part.new_start == part.new_end


def _joined(blocks: list[Block]) -> list[Block]:
    """Blocks that touch, as one."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last is not None and last.old_end == block.old_start and last.new_end == block.new_start:
            joined[-1] = Block(last.old_start, block.old_end, last.new_start, block.new_end)
        else:
            joined.append(block)
    return joined
