"""Limits that the kernel does not hold on this host, held by looking: declared as "polled" in the info.

The keeper asks it to look now and then. It looks often while the sandbox works and seldom while it sleeps.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any

from . import layers, usage
from .watch import Steps, Watch

_BUSY, _IDLE = 0.25, 2.0


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
        self._cpu = -1.0
        self._full: tuple[float, frozenset[int]] | None = None
        self.kills = 0

    def _steps(self) -> Steps:
        pids = [self._first]
        cpu = 0.0
        for pid in pids:
            pids += usage.children(pid)
            cpu += usage.cpu_seconds([pid])
            yield
        active = cpu != self._cpu
        self._cpu = cpu
        if active:
            yield from self._judge(pids)
        return _BUSY if active else _IDLE

    def _judge(self, pids: list[int]) -> Generator[None, None, None]:
        inside = [pid for pid in pids if pid != self._first]
        if self._most is not None:
            self._kill(self._too_many(len(pids), self._most))
        files: dict[tuple[int, int], int] = {}
        for pid in inside:
            files |= usage.nameless(pid)
            yield
        box = os.stat(self._box).st_dev
        removed = sum(size for (device, _), size in files.items() if device == box)
        if self._memory is not None:
            self._kill((yield from self._too_large(inside, self._memory, sum(files.values()) - removed)))
        if self._disk is not None:
            self._kill((yield from self._too_full(inside, self._disk - removed - layers.below(self._box))))

    def _too_large(self, pids: list[int], limit: int, held: int) -> Generator[None, None, list[int]]:
        """Whom to kill so that the rest stays within `limit`; `held` is memory that belongs to no single one."""
        most = held
        for pid in (self._first, *pids):
            most += usage.resident(pid)
            yield
        if most <= limit:
            return []
        sizes = {}
        for pid in (self._first, *pids):
            sizes[pid] = usage.proportional(pid)
            yield
        total = sum(sizes.values()) + held
        victims: list[int] = []
        for pid in sorted(pids, key=sizes.__getitem__, reverse=True):
            if total <= limit:
                break
            victims.append(pid)
            total -= sizes[pid]
        return victims

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

    def _too_full(self, inside: list[int], limit: int) -> Generator[None, None, list[int]]:
        """Whom to kill for what lies on the disk. Who came since it was full may have come to remove something, and
        is spared for as long as it does not become more."""
        try:
            found: float = yield from usage.measure(self._box, enough=2 * max(limit, 0))
        except usage.TooDeep:
            found = float("inf")
        before, self._full = self._full, (found, frozenset(inside)) if found > limit else None
        if found <= limit:
            return []
        if before is None or found > before[0]:
            return inside
        return [pid for pid in inside if pid in before[1]]

    def _kill(self, pids: list[int]) -> None:
        if not pids:
            return
        # It may not have been enough, and what is left may hold what it has without moving: look again soon.
        self._cpu = -1.0
        # Since they were listed some may have ended, and their numbers may be others' by now.
        for pid in set(usage.descendants(self._first)).intersection(pids):
            try:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
            except ProcessLookupError:
                pass
