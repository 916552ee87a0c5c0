"""Many system calls of a traced task at one stop.

Made one by one, each costs two stops. Here they are laid out as a table in memory that nobody else can reach,
with a few instructions that go through it, and all are made before the task stops again.
"""

from __future__ import annotations

import os
import signal
import struct
from typing import NamedTuple

from .tracing import CALLS, TIMEOUT, Strayed, Task

_READ_WRITE_EXECUTE, _PRIVATE_ANONYMOUS = 7, 0x22
_ENTRY = struct.Struct("<8q")
_RESULT_AT = 56
# r12 is where the table goes on, r13 how many calls are left:
# load rax, rdi, rsi, rdx, r10, r8 and r9 from the entry; syscall; store rax; next entry; again until none is left.
_BEFORE = bytes.fromhex("498b0424 498b7c2408 498b742410 498b542418 4d8b542420 4d8b442428 4d8b4c2430 0f05")
_AFTER = bytes.fromhex("4989442438 4983c440 49ffcd 75")
_CODE = _BEFORE + _AFTER + struct.pack("b", -(len(_BEFORE) + len(_AFTER) + 1))
_TABLE_AT = 64


class _Call(NamedTuple):
    name: str
    arguments: tuple[int, ...]
    may_fail: bool


class Scratch:
    """Memory of a task that only who traces it writes to; every task with the same memory may use it.

    Raises:
        OSError: there is no memory for it, or none that may be executed.
        tracing.TaskEnded, tracing.Strayed: as `Task.call` does.
    """

    def __init__(self, task: Task, size: int = 1 << 15) -> None:
        self.size = size
        task.begin()
        self.address = task.call("mmap", 0, size, _READ_WRITE_EXECUTE, _PRIVATE_ANONYMOUS, -1, 0)
        task.write(self.address, _CODE)

    def remove(self, task: Task) -> None:
        task.call("munmap", self.address, self.size)


class Batch:
    """Calls to be made, and the data that they point to."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._calls: list[_Call] = []
        self._top = scratch.address + scratch.size
        self._data: list[tuple[int, bytes]] = []

    def data(self, value: bytes) -> int:
        """Where `value` will be."""
        self._top = (self._top - len(value)) & ~15
        self._data.append((self._top, value))
        return self._top

    def text(self, value: str) -> int:
        return self.data(os.fsencode(value) + b"\0")

    def call(self, name: str, *arguments: int, may_fail: bool = False) -> None:
        self._calls.append(_Call(name, arguments, may_fail))

    def run(self, task: Task, pid: int, timeout: float = TIMEOUT) -> list[int]:
        """Have all calls made, by a task that calls itself `pid`; gives what each has returned.

        Raises:
            OSError: one that may not fail has failed; all others were made.
            tracing.Strayed: the task did something else.
            tracing.TaskEnded: it is dead.
            ValueError: there are too many of them.
        """
        task.begin()
        # A signal that nothing can block or handle, and that never comes to it while it is traced.
        calls = [*self._calls, _Call("kill", (pid, signal.SIGSTOP), may_fail=False)]
        table = b"".join(
            _ENTRY.pack(CALLS[call.name], *call.arguments, *(0,) * (7 - len(call.arguments))) for call in calls
        )
        start = self._scratch.address + _TABLE_AT
        if start + len(table) > self._top:
            raise ValueError("the calls do not fit into their scratch memory")
        task.write(start, table)
        for address, value in self._data:
            task.write(address, value)
        self._go(task, start, len(calls), timeout)
        done = task.read(start, len(table))
        results = [_ENTRY.unpack_from(done, at)[7] for at in range(0, len(done) - _ENTRY.size, _ENTRY.size)]
        for call, result in zip(self._calls, results, strict=True):
            if -4096 < result < 0 and not call.may_fail:
                raise OSError(-result, f"{call.name} in task {task.id}: {os.strerror(-result)}")
        return results

    def _go(self, task: Task, start: int, count: int, timeout: float) -> None:
        registers = task.prepared()
        registers.rip, registers.r12, registers.r13 = self._scratch.address, start, count
        task.registers = registers
        task.resume()
        while True:
            stop = task.wait(timeout)
            if stop != (signal.SIGSTOP, 0):
                if stop.event:
                    task.resume()
                    continue
                raise Strayed(f"task {task.id} met signal {stop.signal} between its calls")
            found = task.registers
            if found.rip == self._scratch.address + len(_BEFORE) and found.r13 == 1:
                return
            # Somebody else has sent the same signal.
            task.resume()
