"""Holding a whole sandbox still for a moment: every task of it stops before its next instruction and goes on later,
none the wiser. Unlike a freezer's, its stop takes no control group, and a held task can be made to change directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Self

from . import moving, tracing, usage
from .settings import BirthFailed

_ROUNDS = 100
_SECONDS = 2.0


class Hold:
    """Holds all processes of a sandbox from `with` to its end. `processes` lists them; who is held starts no others.

    Those `besides` are tasks that the caller has stopped already. All together may take so many `seconds`. With
    `force`, those are ended that wait for a child of theirs, as after vfork, and so cannot be stopped.

    Raises:
        BirthFailed: they start others too fast, or one cannot be stopped; all go on.
    """

    def __init__(
        self,
        processes: Callable[[], list[int]],
        besides: frozenset[int] = frozenset(),
        seconds: float = _SECONDS,
        *,
        force: bool = False,
    ) -> None:
        self._list = processes
        self._besides = besides
        self._seconds = seconds
        self._force = force
        self._ended: set[int] = set()
        self._tasks: dict[int, tracing.Task] = {}

    def __enter__(self) -> Self:
        try:
            deadline = time.monotonic() + self._seconds
            for _ in range(_ROUNDS):
                if not self._stop_new(deadline):
                    return self
            raise BirthFailed("The sandbox's processes start others too fast to be stopped for a moment.", "busy")
        except BaseException:
            self._release()
            raise

    def __exit__(self, *exc: object) -> None:
        self._release()

    def _stop_new(self, deadline: float) -> bool:
        """Stop those that are not held yet; whether there were any. Who is held starts no others."""
        new = [
            task
            for process in self._list()
            for task in tracing.threads(process)
            if task not in self._tasks and task not in self._besides | self._ended and not usage.is_zombie(task)
        ]
        told = [task for task in map(self._tell, new) if task is not None]
        for task in told:
            try:
                task.halt(task.wait(max(0.0, deadline - time.monotonic())))
            except tracing.TaskEnded:
                del self._tasks[task.id]
            except tracing.NotStopped:
                del self._tasks[task.id]  # it goes on by itself once `settle` sees it
                if self._force:
                    self._ended.add(task.id)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(task.id, signal.SIGKILL)
                    deadline = time.monotonic() + _SECONDS
                    continue
                raise BirthFailed(
                    f"A process of the sandbox ({_name(task.id)}) waits in the kernel and cannot be stopped now.",
                    "busy",
                ) from None
        return bool(told)

    def _tell(self, task: int) -> tracing.Task | None:
        try:
            found = tracing.Task(task)
            found.interrupt()
        except tracing.TaskEnded:
            return None
        except OSError as error:
            if usage.is_zombie(task):
                return None
            raise BirthFailed(f"A process of the sandbox ({_name(task)}) cannot be stopped: {error}.", "busy") from None
        self._tasks[task] = found
        return found

    @property
    def processes(self) -> list[int]:
        """Those that are held."""
        return [task for task in self._tasks if _is_leader(task)]

    def move(self, task: int, directory: str) -> None:
        """Have one go on in another directory.

        Raises:
            OSError, tracing.Strayed: it cannot be made to.
        """
        moving.change(self._tasks[task], directory)

    def _release(self) -> None:
        for task in self._tasks.values():
            try:
                task.release()
            except (OSError, tracing.Strayed):
                tracing.let_go(task.id)
        self._tasks.clear()
        tracing.settle()


def _is_leader(task: int) -> bool:
    return os.path.exists(f"/proc/{task}/task/{task}")


def _name(task: int) -> str:
    try:
        with open(f"/proc/{task}/comm", encoding="utf-8", errors="replace") as file:
            return f"pid {task}, {file.read().strip()!r}"
    except OSError:
        return f"pid {task}"
