"""Limits that the kernel does not hold on this host, held by looking: declared as "polled" in the info.

The keeper asks it to look now and then. It looks often while the sandbox works and seldom while it sleeps.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Generator, Iterable
from typing import Any

from . import layers, process_memory, usage
from .watch import Steps, Watch

_BUSY, _IDLE = 0.25, 2.0
# How long what seems to sleep is believed, in seconds.
_LONGEST = 30.0
# How long new ones are killed as they come, in seconds: nobody else is served meanwhile.
_MOMENT = 0.2


class Watchdog(Watch):
    """Kills what goes over a polled limit: the largest processes for memory, all but the guest for disk, and who
    has started the most where there are too many."""

    @classmethod
    def needed(cls, born: dict[str, Any], box: str) -> Watchdog | None:
        """One for the limits of a sandbox that are polled; None when the kernel holds all."""
        held = born["facts"]["limits"]
        memory = born["memory"] if held["memory"] == "polled" else None
        disk = born["quota"] if held["disk"] == "polled" else None
        most = born["pids"] if held["pids"] == "polled" else None
        return cls(memory, disk, box, born["first"], most) if memory or disk or most else None

    def __init__(self, memory: int | None, disk: int | None, box: str, first: int, most: int | None = None) -> None:
        super().__init__()
        self._most = most
        self._memory = memory
        self._disk = disk
        self._box = box
        self._first = first
        self._loads: dict[int, tuple[float, int]] | None = None
        self._judged = 0.0
        self._full: tuple[float, frozenset[int]] | None = None
        self.kills = 0

    def _steps(self) -> Steps:
        loads = yield from usage.of_each(self._first, usage.load)
        # Time is told in hundredths of a second for each: who ends before that has used none, nor has its successor.
        active = loads != self._loads
        self._loads = loads
        if active or time.monotonic() - self._judged > _LONGEST:
            self._judged = time.monotonic()
            yield from self._judge({pid: size for pid, (_, size) in loads.items()})
        return _BUSY if active else _IDLE

    def _judge(self, sizes: dict[int, int]) -> Generator[None, None, None]:
        if self._most is not None:
            self._kill(self._too_many(len(sizes), self._most))
        if self._memory is not None and sum(sizes.values()) > self._memory:
            # At once: to look at open files may take long.
            yield from self._hold_memory(self._memory, 0)
        held = yield from usage.of_each(self._first, usage.nameless)
        files = {place: size for pid, found in held.items() if pid != self._first for place, size in found.items()}
        for thread in [each for pid in held if pid != self._first for each in usage.threads(pid) if each != pid]:
            # It may have a table of its own, or the first one is dead.
            files |= usage.nameless(thread)
            yield
        box = os.stat(self._box).st_dev
        removed = sum(size for (device, _), size in files.items() if device == box)
        if self._memory is not None and sum(sizes.values()) + sum(files.values()) - removed > self._memory:
            yield from self._hold_memory(self._memory, sum(files.values()) - removed)
        if self._disk is not None:
            yield from self._hold_disk(self._disk - removed - layers.below(self._box), {*sizes} - {self._first})

    def _hold_memory(self, limit: int, held: int) -> Generator[None, None, None]:
        """Kill the largest, so that the rest stays within `limit`; `held` is memory that belongs to no single one."""
        began = time.monotonic()
        sizes = yield from process_memory.of_each(self._first)
        # A child has looked meanwhile, and this has served others: it need not rest for that.
        self._spent -= time.monotonic() - began
        total = sum(sizes.values()) + held
        victims: list[int] = []
        for pid in sorted({*sizes} - {self._first}, key=sizes.__getitem__, reverse=True):
            if total <= limit:
                break
            victims.append(pid)
            total -= sizes[pid]
        if not self._kill(victims):
            # Some may have gone on as others.
            self._kill_all(sizes)

    def _too_many(self, count: int, most: int) -> list[int]:
        """Whom to kill so that no more than `most` are left: whole families, the largest first."""
        if count <= most:
            return []
        families = [usage.descendants(child) for child in usage.children(self._first)]
        victims: list[int] = []
        for family in sorted(families, key=len, reverse=True):
            if count - len(victims) <= most:
                break
            victims += family
        return victims

    def _hold_disk(self, limit: int, inside: set[int]) -> Generator[None, None, None]:
        """Kill for what lies on the disk. Who came since it was full may have come to remove something, and is spared
        for as long as it does not become more."""
        try:
            found: float = yield from usage.measure(self._box, enough=2 * max(limit, 0))
        except usage.TooDeep:
            found = float("inf")
        before, self._full = self._full, (found, frozenset(inside)) if found > limit else None
        if found <= limit:
            return
        if before is None or found > before[0]:
            self._kill_all((self._first,))
        else:
            self._kill([*before[1] & inside])

    def _kill(self, pids: list[int]) -> bool:
        """Whether all were still there."""
        if not pids:
            return True
        # It may not have been enough, and what is left may hold what it has without moving: look again soon.
        self._loads = None
        # Since they were listed some may have ended, and their numbers may be others' by now.
        there = set(usage.descendants(self._first)).intersection(pids)
        for pid in there:
            try:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
            except ProcessLookupError:
                there = there - {pid}
        return len(there) == len(pids)

    def _kill_all(self, spared: Iterable[int]) -> None:
        """Kill all but some, and whoever comes meanwhile."""
        self._loads = None
        with contextlib.suppress(TimeoutError):  # it looks again
            self.kills += usage.signal_all(self._first, signal.SIGKILL, _MOMENT, spared)
