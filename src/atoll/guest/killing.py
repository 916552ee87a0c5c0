"""Killing a command with everything it has started, however it hides.

Members are found by mark, by descent, and, where the guest is pid 1, by being orphans with a forged mark.
All are stopped before any is killed, so that none can fork its way past the scan.
"""

from __future__ import annotations

import os
import signal
from time import sleep
from typing import Callable, Dict, Iterable, Optional, Set

from .loop import Loop
from .marks import Marks, mark_of
from .proc import Task, children, newest_pid, pids, read_task, tasks

_ROUNDS = 64
_PAUSES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""A process that survives SIGKILL for longer than all of these hangs in the kernel; nothing more can be done."""
_LOOKS, _LOOK = 4, 0.001
"""How often nobody must be found, and how long after one another, while others are born all the time."""

Select = Callable[[Dict[int, Task]], Set[int]]


class Killer:
    def __init__(self, loop: Loop, marks: Marks, reap: Callable[[], None]) -> None:
        self._loop = loop
        self._marks = marks
        self._reap = reap
        self._own = os.getpid()

    def members(self, mark: int, table: Optional[Dict[int, Task]] = None) -> Set[int]:
        """The living processes of a command."""
        table = tasks() if table is None else table
        return self._members(mark, table)

    def kill_command(self, mark: int, done: Callable[[], None]) -> None:
        """Kill a command; `done` once nothing of it is left."""
        self._kill(lambda table: self._members(mark, table), done, mark)

    def kill_since(self, mark: int, start: int, spared: int, done: Callable[[], None]) -> None:
        """Kill what a context has started since `start` (ticks since boot), but not the context itself."""

        def selected(table: Dict[int, Task]) -> Set[int]:
            seeds = [t.pid for t in table.values() if t.mark == mark and t.start >= start and t.pid != spared]
            return self._with_descendants(seeds, table) - {spared}

        self._kill(selected, done)

    def kill_below(self, pid: int, done: Callable[[], None]) -> None:
        """Kill a process and its descendants."""
        self._kill(lambda table: self._with_descendants([pid], table), done)

    def descendants(self, pid: int) -> Set[int]:
        """A process and what descends from it."""
        return self._with_descendants([pid], tasks())

    def kill_everything(self) -> None:
        """Kill all that this guest ever started, and wait for it a little: the guest is about to end."""
        for pause in _PAUSES:
            if not _sweep(self._ours, None, self._own):
                return
            sleep(min(pause, 0.1))

    def owns(self, pid: int) -> bool:
        """Whether a pid is a process of this sandbox other than the guest."""
        return pid in self._ours(tasks())

    def ours(self, table: Dict[int, Task]) -> Set[int]:
        """The living processes of this sandbox other than the guest."""
        return self._ours(table)

    def _ours(self, table: Dict[int, Task]) -> Set[int]:
        if self._own == 1:
            return self._living(table, table) - {1}
        seeds = [t.pid for t in table.values() if self._marks.issued(t.mark) and t.pid != self._own]
        return self._with_descendants(seeds, table)

    def _members(self, mark: int, table: Dict[int, Task]) -> Set[int]:
        seeds = [t.pid for t in table.values() if t.mark == mark and t.pid != self._own]
        if self._own == 1:
            seeds += [t.pid for t in table.values() if self._marks.forged(t.mark) and self._strayed(t, table)]
        return self._with_descendants(seeds, table)

    def _strayed(self, task: Task, table: Dict[int, Task]) -> bool:
        """Whether nothing above it bears a mark of ours: a guest nested in a command lowers its mark too."""
        above = table.get(task.parent)
        while above is not None and above.pid != self._own:
            if self._marks.issued(above.mark):
                return False
            above = table.get(above.parent)
        return True

    def _with_descendants(self, seeds: Iterable[int], table: Dict[int, Task]) -> Set[int]:
        below = children(table)
        found: Set[int] = set()
        waiting = [pid for pid in seeds if pid in table]
        while waiting:
            pid = waiting.pop()
            if pid not in found and pid != self._own:
                found.add(pid)
                waiting += below.get(pid, ())
        return self._living(found, table)

    def _living(self, pids: Iterable[int], table: Dict[int, Task]) -> Set[int]:
        return {pid for pid in pids if table[pid].alive}

    def wait_for(self, pids: Iterable[int], done: Callable[[], None]) -> None:
        """Call back when none of these processes, which were killed, is there any more, not even as what its parent,
        if that is the guest, has yet to reap."""
        waited = set(pids)
        pauses = iter(_PAUSES)

        def attempt() -> None:
            self._reap()
            waited.intersection_update([pid for pid in waited if self._lingers(read_task(pid))])
            pause = next(pauses, None) if waited else None
            if pause is None:
                done()
            else:
                self._loop.after(pause, attempt)

        attempt()

    def _lingers(self, task: Optional[Task]) -> bool:
        return task is not None and (task.alive or task.parent == self._own)

    def _kill(self, select: Select, done: Callable[[], None], mark: Optional[int] = None) -> None:
        """Until nobody is found, in a time in which nobody was born: who is born after the table was listed, of one who
        has died before it was read, is not in it."""
        pauses = iter(_PAUSES)
        # Of a context the next cell may be starting processes by now.
        looks = iter(range(_LOOKS if mark is not None else 0))

        def attempt() -> None:
            newest = newest_pid()
            if _sweep(select, mark, self._own):
                pause = next(pauses, None)
            elif newest == newest_pid() or next(looks, None) is None:
                pause = None
            else:
                pause = _LOOK
            if pause is None:
                done()
            else:
                self._loop.after(pause, attempt)

        attempt()


def send(pids: Iterable[int], number: int) -> None:
    """A signal to each; one that is gone, or became another user's, is left alone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _sweep(select: Select, mark: Optional[int], own: int) -> bool:
    """Stop, look again until nobody new turns up, kill. Whether there was anybody."""
    stopped: Set[int] = set()
    for _ in range(_ROUNDS):
        if mark is not None:
            _stop_marked(mark, own)
        found = select(tasks()) - stopped
        if not found:
            break
        send(found, signal.SIGSTOP)
        stopped |= found
    send(stopped, signal.SIGKILL)
    return bool(stopped)


def _stop_marked(mark: int, own: int) -> None:
    """Stop each process with a mark the moment it is seen, the newest first.

    Reading the whole table takes so long that processes which fork and exit all the time have moved on
    before they are stopped; this keeps up with them.
    """
    seen = {own}
    for _ in range(_ROUNDS):
        new = [pid for pid in sorted(pids(), reverse=True) if pid not in seen and _stop_if_marked(pid, mark)]
        if not new:
            return
        seen.update(new)


def _stop_if_marked(pid: int, mark: int) -> bool:
    try:
        if mark_of(pid) == mark:
            os.kill(pid, signal.SIGSTOP)
            return True
    except OSError:
        pass  # gone, or not ours
    return False
