"""Marks: numbers that a command's processes inherit and cannot take off.

RLIMIT_LOCKS has had no effect since Linux 2.4.25, passes through fork, setsid and exec, and can only
be lowered. Each command gets a number one lower than the last (docs/decisions/0005). gVisor lets nobody set that one;
there it is RLIMIT_RSS, which has no effect either.
"""

from __future__ import annotations

import os
import resource

_LOCKS, _RSS = 10, resource.RLIMIT_RSS
_INFINITY = resource.RLIM_INFINITY
_used = [_LOCKS]


class Marks:
    """Hands out marks. The guest itself carries the newest one, so whoever looks for marks leaves it out."""

    def __init__(self) -> None:
        if not _can_lower(_LOCKS):
            _used[:] = [_RSS]
        limit = resource.getrlimit(_used[0])[1]
        ceiling = (1 << 61) if limit == _INFINITY else limit
        drawn = int.from_bytes(os.urandom(8), "little") % max(1, ceiling >> 1)
        self._first = self._newest = ceiling - 1 - drawn
        self._apply()

    @property
    def newest(self) -> int:
        return self._newest

    def issue(self) -> int:
        """A new mark, which every process started from now on carries."""
        self._newest -= 1
        self._apply()
        return self._newest

    def _apply(self) -> None:
        resource.setrlimit(_used[0], (self._newest, self._newest))

    def issued(self, mark: int) -> bool:
        return self._newest <= mark <= self._first

    def forged(self, mark: int) -> bool:
        """Lower than any issued: somebody lowered it to hide."""
        return 0 <= mark < self._newest


def _can_lower(limit: int) -> bool:
    try:
        resource.setrlimit(limit, resource.getrlimit(limit))
    except (OSError, ValueError):
        return False
    return True


def mark_of(pid: int) -> int:
    """The mark that a process carries.

    Raises:
        OSError: it is gone, or belongs to somebody else.
    """
    return resource.prlimit(pid, _used[0])[1]


def put_mark(pid: int, mark: int) -> None:
    """Give a mark to a process that runs already; one that has a lower one is taken for forged."""
    try:
        resource.prlimit(pid, _used[0], (mark, mark))
    except OSError:
        pass
