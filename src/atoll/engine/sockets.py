"""The memory of sockets, held by looking: much of it the kernel counts for nobody, whatever a control group's limit.

That is what lies in connections that nobody has accepted yet, errors and time stamps that wait for who asked for them,
datagrams that are still being put together, and the kernel's own answers about the network. One listening socket took
1.4 GB so, in three seconds, in a sandbox of 96 MB.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from .watchdog import Watchdog

# What may lie in them: as much as is allowed of what the kernel does count, or a part of the memory.
_LEAST, _PART = 64 << 20, 4
# Fewer cannot hold much; of more, nobody could say in time what they hold.
_FEW, _MOST = 8, 1 << 16
_BUSY, _IDLE, _REST = 0.5, 2.0, 4


class SocketWatch:
    """Kills all but the guest when the sockets of a network namespace hold too much."""

    @classmethod
    def needed(cls, born: dict[str, Any], processes: Callable[[], list[int]]) -> SocketWatch | None:
        """None for one that has the host's network: whose sockets are whose cannot be told there."""
        first = born["first"]
        try:
            own = not os.path.samestat(os.stat(f"/proc/{first}/ns/net"), os.stat("/proc/self/ns/net"))
        except OSError:
            return None
        return cls(first, max(_LEAST, born["memory"] // _PART), processes) if own else None

    def __init__(self, first: int, most: int, processes: Callable[[], list[int]]) -> None:
        self._first = first
        self._allowed = most
        self._processes = processes
        self._next = 0.0

    def due(self, now: float) -> float:
        """Seconds until it wants to look again."""
        return max(0.0, self._next - now)

    def look(self, now: float) -> None:
        if self.due(now) > 0:
            return
        self._next = now + _IDLE
        with contextlib.suppress(OSError):  # the first process is gone, which its keeper hears of
            count = self._count()
            if count > _MOST or (count > _FEW and self._held() > self._allowed):
                self._end_all()
            # Who makes it long to look must not keep the keeper from everything else.
            spent = time.monotonic() - now
            self._next = now + max(_BUSY if count > _FEW else _IDLE, _REST * spent)

    def _count(self) -> int:
        with open(f"/proc/{self._first}/net/sockstat", "rb") as file:
            return int(file.readline().split()[-1])

    def _held(self) -> int:
        """Bytes that wait in all of them, to be sent or to be read."""
        held = 0
        for name in ("tcp", "tcp6", "udp", "udp6"):
            for fields in self._table(name):
                sending, _, waiting = fields[4].partition(b":")
                held += int(sending, 16) + int(waiting, 16)
        return held + sum(int(fields[4]) + int(fields[5]) for fields in self._table("netlink"))

    def _table(self, name: str) -> list[list[bytes]]:
        try:
            with open(f"/proc/{self._first}/net/{name}", "rb") as file:
                file.readline()
                return [line.split(None, 6) for line in file]
        except FileNotFoundError:  # a kernel without it
            return []

    def _end_all(self) -> None:
        for pid in self._processes():
            if pid != self._first:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


Watch = Watchdog | SocketWatch


def watches(born: dict[str, Any], box: str, processes: Callable[[], list[int]]) -> list[Watch]:
    """All that a keeper looks at now and then, because the kernel does not hold it."""
    found = Watchdog.needed(born, box), SocketWatch.needed(born, processes)
    return [each for each in found if each is not None]
