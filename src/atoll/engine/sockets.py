"""The memory of sockets, held by looking: much of it the kernel counts for nobody, whatever a control group's limit.

That is what lies in connections that nobody has accepted yet, errors and time stamps that wait for who asked for them,
datagrams that are still being put together, and the kernel's own answers about the network. One listening socket took
1.4 GB so, in three seconds, in a sandbox of 96 MB.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

from . import usage
from .watch import Steps, Watch

# What may lie in them: as much as is allowed of what the kernel does count, or a part of the memory.
_LEAST, _PART = 64 << 20, 4
# Fewer cannot hold much; of more, nobody could say in time what they hold.
_FEW, _MOST = 8, 1 << 16
_BUSY, _IDLE = 0.5, 2.0
_LINES = 500
# How long new ones are killed as they come, in seconds.
_MOMENT = 0.2


class SocketWatch(Watch):
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
        super().__init__()
        self._first = first
        self._allowed = most
        self._processes = processes

    def _steps(self) -> Steps:
        with contextlib.suppress(OSError):  # the first process is gone, which its keeper hears of
            count = self._count()
            if count > _MOST or (count > _FEW and (yield from self._held()) > self._allowed):
                self._end_all()
            return _BUSY if count > _FEW else _IDLE
        return _IDLE

    def _count(self) -> int:
        with open(f"/proc/{self._first}/net/sockstat", "rb") as file:
            return int(file.readline().split()[-1])

    def _held(self) -> Generator[None, None, int]:
        """Bytes that wait in all of them, to be sent or to be read."""
        held = 0
        for name in ("tcp", "tcp6", "udp", "udp6", "netlink"):
            for number, fields in enumerate(self._table(name)):
                if name == "netlink":
                    held += int(fields[4]) + int(fields[5])
                else:
                    sending, _, waiting = fields[4].partition(b":")
                    held += int(sending, 16) + int(waiting, 16)
                if number % _LINES == 0:
                    yield
        return held

    def _table(self, name: str) -> Iterator[list[bytes]]:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{self._first}/net/{name}", "rb") as file:
            file.readline()
            for line in file:
                yield line.split(None, 6)

    def _end_all(self) -> None:
        with contextlib.suppress(TimeoutError):  # it looks again
            usage.signal_each(self._processes, signal.SIGKILL, _MOMENT, (self._first,))
