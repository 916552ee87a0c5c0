"""A page of memory that a context shares with its guest: each sees how the other stands without asking.

Code of a cell can write to it too. It then deceives its guest about itself and nobody else: which of its
cells runs, and whether it does.
"""

from __future__ import annotations

import struct
from mmap import mmap
from time import monotonic
from typing import NamedTuple

RING = 1 << 18
"""Bytes of output that a context may leave for its guest to send on."""

_HEAD = 64
_USED = struct.Struct("<I")
_USED_AT = 40
RUNNING, _RELAYING, _WAITING, _CUT = 0, 1, 2, 3
_CELL = struct.Struct("<IIIId")
_CELL_AT = 8
_LANE = struct.Struct("<I")


class Begun(NamedTuple):
    """The request that a context began last: it came by the lane `last`, or through the guest if that is 0.

    `lane` is the same while it runs, and 0 afterwards.
    """

    lane: int
    last: int
    channel: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls here
    since: float


SIZE = _HEAD + RING


class Shared:
    """Made by the guest before it forks the context; or by somebody else, as a file that both map."""

    def __init__(self, fd: int = -1) -> None:
        self.page = mmap(fd, SIZE)

    @property
    def running(self) -> bool:
        """Whether there is something to interrupt."""
        return self.page[RUNNING] != 0

    @running.setter
    def running(self, value: bool) -> None:
        self.page[RUNNING] = value

    @property
    def relaying(self) -> bool:
        """Whether the guest has taken output of the context's processes that is not on its way yet."""
        return self.page[_RELAYING] != 0

    @relaying.setter
    def relaying(self, value: bool) -> None:
        self.page[_RELAYING] = value

    @property
    def waiting(self) -> bool:
        """Whether the guest keeps output that came between two cells."""
        return self.page[_WAITING] != 0

    @waiting.setter
    def waiting(self, value: bool) -> None:
        self.page[_WAITING] = value

    @property
    def used(self) -> int:
        """How much output waits here for the guest. Only the context changes it."""
        return min(int(_USED.unpack_from(self.page, _USED_AT)[0]), RING)

    @used.setter
    def used(self, value: int) -> None:
        _USED.pack_into(self.page, _USED_AT, value)

    def leave(self, data: memoryview, used: int) -> None:
        """Add output after what is there."""
        at = _HEAD + used
        end = at + len(data)
        self.page[at:end] = data
        _USED.pack_into(self.page, _USED_AT, end - _HEAD)

    def left(self, start: int, end: int) -> bytes:
        """Output that waits."""
        return self.page[_HEAD + start : _HEAD + end]

    @property
    def cut(self) -> bool:
        """Whether the guest had to drop output that came between two cells."""
        return self.page[_CUT] != 0

    @cut.setter
    def cut(self, value: bool) -> None:
        self.page[_CUT] = value

    def begin(self, lane: int, channel: int, count: int) -> None:
        """Called while nothing runs. The lane is set last: who sees it sees the rest."""
        _CELL.pack_into(self.page, _CELL_AT, 0, lane, channel, count, monotonic())
        _LANE.pack_into(self.page, _CELL_AT, lane)

    def end(self) -> None:
        _LANE.pack_into(self.page, _CELL_AT, 0)

    @property
    def begun(self) -> Begun:
        return Begun(*_CELL.unpack_from(self.page, _CELL_AT))
