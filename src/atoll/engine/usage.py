"""What a sandbox uses, measured from outside its wall. Every process in it descends from its first one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEEPEST = 400
_ENTRY = 1024
_STEP = 100
_DEAD = (b"Z", b"X")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TooDeep(Exception):
    """Directories nested so deep that their content cannot be measured."""


def children(pid: int) -> list[int]:
    """Those that it has started, and the orphans that it was given."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def descendants(pid: int) -> list[int]:
    """A process and everything below it."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_zombie(pid: int) -> bool:
    """Whether it has ended, but for somebody to take notice."""
    fields = _stat(pid)
    return fields is None or fields[0] in _DEAD


def goes_on(pid: int) -> bool:
    """Whether one of its threads is neither stopped nor dead, nor waits where no signal reaches it."""
    return any(fields[0] in (b"R", b"S") for each in threads(pid) if (fields := _stat(each)))


def has_ended(pid: int) -> bool:
    """Whether all of its threads have. Its first one may have ended before the others."""
    return all(map(is_zombie, threads(pid)))


def cpu_seconds(pids: list[int]) -> float:
    """Their own time and that of the children they have waited for; the first process waits for all."""
    return sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid))) / _TICKS


T = TypeVar("T")


def of_each(first: int, measure: Callable[[int], T]) -> Generator[None, None, dict[int, T]]:
    """What is measured of a process and of everything below it, in steps of one each.

    Each is measured when it is found, and the youngest first: who forks and ends all the time, and so is another
    process a moment later, would be gone when a list of all was there.
    """
    found = {first: measure(first)}
    for parent in (parents := [first]):
        for child in reversed(children(parent)):
            if child not in found:
                found[child] = measure(child)
                parents.append(child)
                yield
        yield
    return found


def load(pid: int) -> tuple[float, int]:
    """Its `cpu_seconds` and what is `resident` of it."""
    fields = _stat(pid)
    if fields is None:
        return 0.0, 0
    size = int(fields[21]) * _PAGE if fields[0] not in _DEAD else resident(pid)
    return sum(map(int, fields[11:15])) / _TICKS, size


def threads(pid: int) -> list[int]:
    """Those of a process; none where it is gone."""
    try:
        return [*map(int, os.listdir(f"/proc/{pid}/task"))]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _living(pid: int) -> int:
    """A thread of a process that tells its memory: the first may have ended while others go on, and tells none."""
    if is_zombie(pid):
        return next((each for each in threads(pid) if not is_zombie(each)), pid)
    return pid


def resident(pid: int) -> int:
    fields = _stat(_living(pid))
    return int(fields[21]) * _PAGE if fields else 0


def proportional(pid: int) -> int:
    """Its memory, with what it shares divided among those who share it. Slower than `resident`."""
    try:
        with open(f"/proc/{_living(pid)}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        return resident(pid)


def memory(pids: list[int]) -> int:
    """The memory of all together."""
    return sum(map(proportional, pids))


def nameless(pid: int) -> dict[tuple[int, int], int]:
    """Bytes of files that have no name any more and that a process, or one thread, holds open, by device and number.

    On a disk they are removed files; elsewhere they are memory that no process has mapped, such as a memfd.
    """
    found: dict[tuple[int, int], int] = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found  # gone, or the first process, which lets nobody look
    for name in names:
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if status.st_nlink == 0 and status.st_mode & 0o170000 == 0o100000:
            found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def signal_all(first: int, number: int, seconds: float, spared: Iterable[int] = ()) -> int:
    """Send a signal to a process and all its descendants but some, until no new one appears; gives how many got it.

    Raises:
        TimeoutError: new ones have appeared for so many seconds.
    """
    return signal_each(lambda: descendants(first), number, seconds, spared)


def signal_each(processes: Callable[[], list[int]], number: int, seconds: float, spared: Iterable[int] = ()) -> int:
    """The same for whom a function gives."""
    reached, got = set(spared), 0
    until = time.monotonic() + seconds
    while new := set(processes()) - reached:
        if time.monotonic() > until:
            raise TimeoutError("processes that start others all the time were not stopped in time")
        for pid in new:
            try:
                os.kill(pid, number)
                got += 1
            except ProcessLookupError:
                pass
        reached |= new
    return got


def disk(path: str, enough: float = float("inf")) -> int:
    """Bytes that a tree takes on disk, or some number above `enough`. Follows nothing.

    An empty file takes something too: without that, any number of them would be free.

    Raises:
        TooDeep: it is nested beyond what can be measured, which only an attack does.
    """
    steps = measure(path, enough)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return int(end.value)


def measure(path: str, enough: float = float("inf")) -> Generator[None, None, int]:
    """The same in steps, of some names each. Raises as `disk` does."""
    total = steps = 0
    stack = [os.open(path, _DIRECTORY)]
    # Not lists of names: one directory may have millions.
    pending = [os.scandir(stack[0])]
    try:
        while stack and total <= enough:
            steps += 1
            if steps % _STEP == 0:
                yield
            entry = next(pending[-1], None)
            if entry is None:
                pending.pop().close()
                os.close(stack.pop())
                continue
            try:
                status = os.stat(entry.name, dir_fd=stack[-1], follow_symlinks=False)
                total += max(status.st_blocks * 512, _ENTRY)
                if status.st_mode & 0o170000 != 0o040000:
                    continue
                child = os.open(entry.name, _DIRECTORY, dir_fd=stack[-1])
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            stack.append(child)
            pending.append(os.scandir(child))
            if len(stack) > _DEEPEST:
                raise TooDeep(f"directories are nested more than {_DEEPEST} deep")
    finally:
        for names in pending:
            names.close()
        for fd in stack:
            os.close(fd)
    return total


def mounted_disk(pid: int, workdir: str) -> int:
    """Bytes used of a sandbox's own disk, asked of the file system that its first process sees."""
    return used(f"/proc/{pid}/root{workdir}")


def used(path: str | int) -> int:
    """Bytes used of the file system that something, a path or a descriptor, is on, be they written yet or not."""
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
