"""Moving running processes to another directory, before they make another step and without their noticing.

A mount that is laid over another is seen only by who looks a path up anew: who stands in a directory of the old one
goes on there.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable

from . import usage
from .tracing import TIMEOUT, NotStopped, Strayed, Task, TaskEnded, leave_behind, let_go, threads

_PAUSE = 0.0005
_PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS = 3, 0x22
_PAGE = os.sysconf("SC_PAGE_SIZE")


def change(task: Task, path: str, timeout: float = TIMEOUT) -> None:
    """Have a stopped task change its directory. Raises OSError, Strayed."""
    data = os.fsencode(path) + b"\0"
    size = -(-len(data) // _PAGE) * _PAGE
    task.begin()
    place = task.call("mmap", 0, size, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS, -1, 0, timeout=timeout)
    try:
        task.write(place, data)
        task.call("chdir", place, timeout=timeout)
    finally:
        task.call("munmap", place, size, timeout=timeout)


def move_directories(
    processes: Iterable[int],
    moves: Callable[[int], str | None],
    thaw: Callable[[], None] = lambda: None,
    timeout: float = TIMEOUT,
) -> dict[int, Exception]:
    """Have every thread of some processes change its directory before it makes another step, and go on.

    `moves` is asked with the id of each thread, which is stopped then, and says where it goes; None where it stays.
    A thread that shares its directory with one that has moved is asked too. If the processes are frozen, `thaw` lets
    them go, once all have been told to stop. Gives what went wrong, by thread; who has ended is left out.

    Raises:
        OSError: `thaw` did; all go on.
    """
    failed: dict[int, Exception] = {}
    waiting = _interrupted(processes, failed)
    end = time.monotonic() + timeout
    try:
        thaw()
    finally:
        while waiting and time.monotonic() < end:
            stopped = [task for task in waiting.values() if _has_stopped(task)]
            for task in stopped:
                del waiting[task.id]
                _move(task, moves, failed, timeout)
            if not stopped:
                time.sleep(_PAUSE)
        for task in waiting.values():
            leave_behind(task.id)
            failed[task.id] = NotStopped(errno.ETIMEDOUT, f"task {task.id} did not stop within {timeout:g} seconds")
    return failed


def change_directory(process: int, path: str, timeout: float = TIMEOUT) -> None:
    """Have a process go on in another directory; it does not notice.

    Raises:
        TaskEnded: it is gone.
        OSError: it cannot be traced, or cannot go there.
        Strayed: it is hostile, and cannot be made to.
    """
    if not threads(process):
        raise TaskEnded(errno.ESRCH, f"process {process} is gone")
    for error in move_directories([process], lambda _task: path, timeout=timeout).values():
        raise error


def _interrupted(processes: Iterable[int], failed: dict[int, Exception]) -> dict[int, Task]:
    found: dict[int, Task] = {}
    for process in processes:
        # Once more until nobody is new: a thread may start others before it is told to stop.
        while new := [task for task in threads(process) if task not in found and task not in failed]:
            for each in new:
                try:
                    task = Task(each)
                    task.interrupt()
                    found[each] = task
                except TaskEnded:
                    continue
                except OSError as error:
                    if not usage.is_zombie(each):
                        failed[each] = error
            if all(usage.is_zombie(task) for task in new):
                break
    return found


def _has_stopped(task: Task) -> bool:
    try:
        task.first = task.stopped_now()
    except TaskEnded:
        return True  # what is tried with it then says so
    return task.first is not None


def _move(task: Task, moves: Callable[[int], str | None], failed: dict[int, Exception], timeout: float) -> None:
    try:
        if task.first is not None:
            task.halt(task.first, timeout)
        try:
            path = moves(task.id)
            if path is not None:
                change(task, path, timeout)
        finally:
            task.release(timeout)
    except TaskEnded:
        return
    except Exception as error:  # noqa: BLE001  # whatever it is, the others must go on
        failed[task.id] = error
        if isinstance(error, Strayed):
            let_go(task.id)
