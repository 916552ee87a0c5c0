"""Holding a whole sandbox still for a moment: every task of it stops before its next instruction and goes on later,
none the wiser. A held task can be made to change directory, with its own rights.

With a control group that can freeze, the hold is whole by the kernel's count: while all are frozen nobody starts or
ends, so that those found must be as many as the group has, and all are told to stop before one goes on. Without, who
is missed goes on where it stood: no promise hangs on it, because what a hold is for changes nothing that a task may
do with what it already has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Self

from . import cgroups, tracing, usage
from .settings import BirthFailed

# How long it may take until all are held, all that is done with them, and one move of it; in seconds.
_SECONDS, _WHOLE, _MOVE = 2.0, 10.0, 1.0
# How long to try to freeze at once: a thread in execve waits for others of its process, which cannot end frozen.
_FREEZING = 0.25
_MOMENT = 0.001
_ROUNDS = 100
_PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS = 3, 0x22
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Hold:
    """Holds all processes of a sandbox from `with` to its end. `processes` lists them; who is held starts no others.

    It is for a process that does nothing else: the kernel cannot always be kept from making who seizes a task wait
    for ever, so that one who waits too long is ended by the signal SIGALRM, and all go on.

    All that is done with it ends at `until`, by the monotonic clock. With `force`, those are ended that wait for a
    child of theirs, as after vfork, and so cannot be stopped.

    Raises:
        BirthFailed: they start others too fast, or one cannot be stopped; all go on.
    """

    def __init__(
        self,
        processes: Callable[[], list[int]],
        *,
        first: int = 0,
        group: cgroups.Group | None = None,
        until: float | None = None,
        force: bool = False,
    ) -> None:
        self._list = processes
        self._first = first
        self._group = group if group is not None and group.can_freeze else None
        self._force = force
        self._dead: set[int] = set()
        self._tasks: dict[int, tracing.Task] = {}
        self._until = until or time.monotonic() + _WHOLE

    def __enter__(self) -> Self:
        deadline = min(time.monotonic() + _SECONDS, self._until)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _SECONDS * 2)
        try:
            if self._group:
                self._stop_frozen(self._group, deadline)
            self._stop_all(deadline)
        except BaseException:
            self._release()
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return self

    def __exit__(self, *exc: object) -> None:
        self._release()

    def _stop_frozen(self, group: cgroups.Group, deadline: float) -> None:
        """Tell all to stop while nobody can take a step; they do when they are thawed."""
        while True:
            try:
                group.freeze(True, min(_FREEZING, max(_MOMENT, deadline - time.monotonic())))
                break
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise BirthFailed("The sandbox's processes cannot be stopped now; try again.", "busy") from None
                time.sleep(_MOMENT)
        try:
            # Some may have been about to end, which takes them a moment yet.
            while len(tasks := self._found()) != group.count():
                if time.monotonic() > deadline:
                    raise BirthFailed("The sandbox's processes end and start too fast to be stopped.", "busy")
                time.sleep(_MOMENT)
            for task in tasks:
                self._tell(task)
        finally:
            group.freeze(False)

    def _found(self) -> set[int]:
        """All tasks, those that have ended and were not waited for too."""
        processes = {*self._list(), *([self._first, *usage.descendants(self._first)] if self._first else ())}
        return {task for process in processes for task in tracing.threads(process)}

    def _stop_all(self, deadline: float) -> None:
        """Wait for those that were told to stop, and tell those that were not found yet."""
        self._await(list(self._tasks.values()), deadline)
        for _ in range(_ROUNDS):
            new = self._found() - self._tasks.keys() - self._dead
            for task in new:
                self._tell(task)
            if not new:
                return
            self._await([self._tasks[task] for task in new & self._tasks.keys()], deadline)
            if time.monotonic() > deadline:
                break
        raise BirthFailed("The sandbox's processes start others too fast to be stopped for a moment.", "busy")

    def _await(self, told: list[tracing.Task], deadline: float) -> None:
        for task in told:
            try:
                left = max(0.0, deadline - time.monotonic())
                task.halt(task.wait(left), left)
            except tracing.TaskEnded:
                self._lose(task.id)
            except tracing.NotStopped:
                self._lose(task.id)  # it goes on by itself once `settle` sees it, or its tracer ends
                if not self._force:
                    raise BirthFailed(
                        f"A process of the sandbox ({_name(task.id)}) waits in the kernel and cannot be stopped now.",
                        "busy",
                    ) from None
                _kill(task.id)
                deadline = time.monotonic() + _SECONDS

    def _tell(self, task: int) -> None:
        """Have a task stop. One that is gone meanwhile may have started another: that is found in the next round."""
        try:
            found = tracing.Task(task)
            found.interrupt()
        except tracing.TaskEnded:
            self._dead.add(task)
        except OSError as error:
            if not usage.is_zombie(task):
                raise BirthFailed(
                    f"A process of the sandbox ({_name(task)}) cannot be stopped: {error}.", "busy"
                ) from None
            self._dead.add(task)
        else:
            self._tasks[task] = found

    def _lose(self, task: int) -> None:
        del self._tasks[task]
        self._dead.add(task)

    @property
    def processes(self) -> list[int]:
        """Those that are held."""
        return [task for task in self._tasks if _is_leader(task)]

    def move(self, process: int, directory: str) -> None:
        """Have one go on in another directory.

        One that does something else meanwhile, or whose call does not come back, is hostile, and is ended.

        Raises:
            ProcessLookupError: it is not held any more.
            OSError: it cannot go there, or the time is over.
        """
        if process not in self._tasks:
            raise ProcessLookupError(f"process {process} is gone")
        if not self._left():
            raise TimeoutError("it took too long to bring the sandbox's processes to their directories")
        try:
            _change_directory(self._tasks[process], directory, self._left())
        except (tracing.Strayed, tracing.NotStopped) as error:
            self._lose(process)
            _kill(process)
            raise TimeoutError(f"process {process} was ended: {error}") from None

    def _release(self) -> None:
        for task in self._tasks.values():
            try:
                task.release(self._left())
            except (OSError, tracing.Strayed):
                tracing.let_go(task.id)
        self._tasks.clear()
        tracing.settle()

    def _left(self) -> float:
        """For one step with one task, in seconds."""
        return min(_MOVE, max(0.0, self._until - time.monotonic()))


def _change_directory(task: tracing.Task, path: str, timeout: float) -> None:
    """Have a stopped task change its directory. Raises OSError, Strayed, NotStopped."""
    data = os.fsencode(path) + b"\0"
    size = -(-len(data) // _PAGE) * _PAGE
    task.begin()
    place = task.call("mmap", 0, size, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS, -1, 0, timeout=timeout)
    try:
        task.write(place, data)
        task.call("chdir", place, timeout=timeout)
    except tracing.NotStopped:
        raise
    except OSError:
        task.call("munmap", place, size, timeout=timeout)
        raise
    task.call("munmap", place, size, timeout=timeout)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _is_leader(task: int) -> bool:
    return os.path.exists(f"/proc/{task}/task/{task}")


def _name(task: int) -> str:
    try:
        with open(f"/proc/{task}/comm", encoding="utf-8", errors="replace") as file:
            return f"pid {task}, {file.read().strip()!r}"
    except OSError:
        return f"pid {task}"
