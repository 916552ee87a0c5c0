"""Whom the kernel kills first when the sandbox's memory is full: what the guest has started, never the guest.

By itself the kernel kills the largest process. Among many small ones that is the guest, and with it the sandbox.
"""

from __future__ import annotations

import os
from typing import Optional

_FIRST = b"1000"


class Victims:
    """While it is entered, whatever starts is killed first. So is the guest for that moment: a start inherits.

    Args:
        score: the guest's own oom_score_adj, opened to read and write; None where it has none, and this does nothing.
        kills: a file of the sandbox's control group that counts as `oom_kill` whom the kernel killed; if there is one.
    """

    def __init__(self, score: Optional[int], kills: Optional[int] = None) -> None:
        self._score = score
        self._kills = kills
        self._killed = 0
        self._noted = False
        self._usual = b"" if score is None else os.pread(score, 16, 0)

    def __enter__(self) -> None:
        if self._score is not None:
            os.pwrite(self._score, _FIRST, 0)

    def __exit__(self, *_: object) -> None:
        if self._score is not None:
            try:
                os.pwrite(self._score, self._usual, 0)
            except PermissionError:
                self._score = None  # the host's administrator has set another one since, and that one stays

    def note(self) -> None:
        """The guest itself is about to kill somebody for memory."""
        self._noted = True

    def out_of_memory(self) -> bool:
        """Whether somebody was killed for memory since this was last asked."""
        if self._kills is None:
            noted, self._noted = self._noted, False
            return noted
        killed = 0
        for line in os.pread(self._kills, 4096, 0).splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                killed = int(count)
        before, self._killed = self._killed, killed
        return killed > before

    def fork(self) -> int:
        """As `os.fork` does; raises OSError as it does."""
        self.__enter__()
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                self.__exit__()
        return pid
