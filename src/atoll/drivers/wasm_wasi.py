"""All that an instance can ask of the host: WASI preview 1, with files, clocks, chance and nothing else.

There is no network, no process and no other file here, so that there is none to be denied.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Callable

from . import wasm_abi as abi
from .wasm_files import Files
from .wasm_table import NULL, Opened, Table

PORTAL = 100
"""The number of the open file by which an instance talks with its host."""

_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID)
_MOST_SUBSCRIPTIONS = 1024
_CLOCK, _ABSOLUTE = 0, 1
_LONGEST = 1e6
_RANDOM_AT_ONCE = 1 << 20


class Wasi(Files):
    """The functions that an instance imports, by their names.

    Args:
        arguments: of its program.

    Attributes:
        hears: takes what is written to the portal.
        says: what is to be read from it, at most so many bytes; it may wait.
        wake: a descriptor that is readable when a wait is to end early; -1 where nobody does that.
        is_interrupted: whether a wait is not to begin at all.
    """

    def __init__(self, table: Table, arguments: list[str]) -> None:
        super().__init__(table)
        self._arguments = [argument.encode() + b"\0" for argument in arguments]
        self.hears: Callable[[memoryview], None] | None = None
        self.says: Callable[[int], bytes] | None = None
        self.wake = -1
        self.is_interrupted: Callable[[], bool] = lambda: False
        table.put(0, Opened(NULL, abi.CHARACTER_DEVICE, writable=False))
        table.put(1, Opened(1, abi.CHARACTER_DEVICE))
        table.put(2, Opened(2, abi.CHARACTER_DEVICE))
        table.put(PORTAL, Opened(-1, abi.CHARACTER_DEVICE))

    def args_sizes_get(self, count: int, size: int) -> None:
        self.memory.put_size(count, len(self._arguments))
        self.memory.put_size(size, sum(map(len, self._arguments)))

    def args_get(self, pointers: int, texts: int) -> None:
        for number, argument in enumerate(self._arguments):
            self.memory.put_size(pointers + 4 * number, texts)
            self.memory.write(texts, argument)
            texts += len(argument)

    def environ_sizes_get(self, count: int, size: int) -> None:
        """Of the process. A context sets its own when it begins."""
        self.memory.put_size(count, 0)
        self.memory.put_size(size, 0)

    def environ_get(self, _pointers: int, _texts: int) -> None:
        pass

    def clock_res_get(self, clock: int, at: int) -> None:
        self.memory.put_long(at, max(1, int(time.clock_getres(_clock(clock)) * 1e9)))

    def clock_time_get(self, clock: int, _precision: int, at: int) -> None:
        self.memory.put_long(at, time.clock_gettime_ns(_clock(clock)))

    def random_get(self, at: int, length: int) -> None:
        for start in range(0, length, _RANDOM_AT_ONCE):
            self.memory.write(at + start, os.urandom(min(_RANDOM_AT_ONCE, length - start)))

    def sched_yield(self) -> None:
        os.sched_yield()

    def proc_exit(self, code: int) -> None:
        os._exit(code & 0xFF)

    def sock_accept(self, *_arguments: int) -> None:
        raise abi.failure(errno.ENOTSUP)

    sock_recv = sock_send = sock_shutdown = sock_accept

    def fd_read(self, fd: int, vectors: int, count: int, read: int) -> None:
        if fd == PORTAL and self.says is not None:
            (piece,) = self.memory.vectors(vectors, 1)
            data = self.says(len(piece))
            piece[: len(data)] = data
            self.memory.put_size(read, len(data))
        else:
            super().fd_read(fd, vectors, count, read)

    def fd_write(self, fd: int, vectors: int, count: int, written: int) -> None:
        if fd == PORTAL and self.hears is not None:
            (piece,) = self.memory.vectors(vectors, 1)
            self.hears(piece)
            self.memory.put_size(written, len(piece))
        else:
            super().fd_write(fd, vectors, count, written)

    def poll_oneoff(self, subscriptions: int, events: int, count: int, happened: int) -> None:
        """Files are always ready, so this waits for clocks only; and no longer, once somebody interrupts it."""
        if not 0 < count <= _MOST_SUBSCRIPTIONS:
            raise abi.failure(errno.EINVAL)
        asked = list(abi.SUBSCRIPTION.iter_unpack(self.memory.read(subscriptions, count * abi.SUBSCRIPTION.size)))
        answers = [abi.EVENT.pack(user, 0, kind, 1, 0) for user, kind, *_ in asked if kind != _CLOCK]
        if not answers:
            waits = [(_left(clock, at, how), user) for user, _, clock, at, _, how in asked]
            first, user = min(waits)
            self._wait(first)
            answers = [abi.EVENT.pack(user, 0, _CLOCK, 0, 0)]
        self.memory.write(events, b"".join(answers))
        self.memory.put_size(happened, len(answers))

    def _wait(self, seconds: float) -> None:
        if self.wake < 0:
            time.sleep(seconds)
            return
        # In this order: who interrupts first sees to `is_interrupted`, and then to `wake`.
        self._forget_wake()
        if not self.is_interrupted() and select.select([self.wake], [], [], seconds)[0]:
            self._forget_wake()

    def _forget_wake(self) -> None:
        try:
            os.read(self.wake, 1 << 12)
        except BlockingIOError:
            pass


def _clock(number: int) -> int:
    if number >= len(_CLOCKS):
        raise abi.failure(errno.EINVAL)
    return _CLOCKS[number]


def _left(clock: int, at: int, how: int) -> float:
    """Seconds until a clock shows a time, or until so much has passed."""
    nanoseconds = at - time.clock_gettime_ns(_clock(clock)) if how & _ABSOLUTE else at
    return min(max(0.0, nanoseconds / 1e9), _LONGEST)
