"""Keeping a sandbox below its memory, where its kernel does not kill somebody for that by itself, as gVisor's does not.

Beyond the limit, the host ends the whole sandbox. So the guest looks first, the sooner the less is left, and kills the
largest process, as Linux would. It is a courtesy to what else runs here, and no wall: that is the host's limit.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Dict, Optional

from .killing import Killer, send
from .loop import Loop
from .proc import tasks
from .victims import Victims

_KILL = 9
# Bytes a second that a sandbox may fill at most; the guest looks before what is left can be full.
_FASTEST = 2 << 30
_SHORTEST, _LONGEST = 0.01, 1.0
# gVisor frees what a process had after its end, in so many seconds at most.
_FREEING = 1.0


class Decision:
    """Whether another process has to be killed: not while what the last one had is being freed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most = 0
        self._until = float("-inf")

    def must_kill(self, now: float, used: int, *, victim_alive: bool) -> bool:
        """The answer, which the caller acts on; `victim_alive` is whether the last one still is."""
        if used <= self._limit:
            return False
        if victim_alive:
            self._most, self._until = max(self._most, used), now + _FREEING
            return False
        if now < self._until and used <= self._most:
            return False
        self._most, self._until = used, now + _FREEING
        return True


class Thrift:
    """Looks after `limit` bytes from now on."""

    def __init__(self, loop: Loop, killer: Killer, victims: Victims, limit: int) -> None:
        self._loop = loop
        self._killer = killer
        self._victims = victims
        self._limit = limit
        self._decision = Decision(limit)
        self._victim = 0
        self._file = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        self._look()

    def _look(self) -> None:
        used = self._used()
        left = self._limit - used
        if left <= 0:
            self._make_room(used)
        self._loop.after(min(max(left / _FASTEST, _SHORTEST), _LONGEST), self._look)

    def _used(self) -> int:
        found: Dict[bytes, int] = {}
        for line in os.pread(self._file, 256, 0).splitlines()[:2]:
            name, _, rest = line.partition(b":")
            found[name] = int(rest.split()[0]) << 10
        return found[b"MemTotal"] - found[b"MemFree"]

    def _make_room(self, used: int) -> None:
        table = tasks()
        alive = self._victim in table and table[self._victim].alive
        if not self._decision.must_kill(monotonic(), used, victim_alive=alive):
            return
        largest: Optional[int] = max(self._killer.ours(table), key=lambda pid: table[pid].memory, default=None)
        if largest is not None:
            self._victim = largest
            self._victims.note()
            send([largest], _KILL)
