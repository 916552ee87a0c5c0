"""What holds a sandbox of gVisor within its limits on the host.

The number of processes is held by gVisor itself. A control group holds memory, with an allowance for gVisor and for
what may be filled before the guest has looked (see `guest.thrift`): who gets beyond that is ended with the whole
sandbox. Without a control group memory and disk are looked after, in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..engine import cgroups, usage
from ..engine.steward import tree
from ..engine.steward.wall import FILES, StartFailed

_OVERHEAD = 192 << 20
# Tasks of the host that gVisor has of itself, and for a process of the sandbox at least. One that it cannot make ends
# it with the whole sandbox. `ptrace` keeps, for each process, one more for each of its own threads that has ever run
# it, and there may be as many of these as processes, and some: what one fork bomb of 48 took were 400 to 1700, and ten
# in a row 3900.
_TASKS_OWN, _TASKS_EACH, _THREADS_OWN = 512, 24, 64
# No sandbox takes more than this part of the tasks that the host may have, unless it is allowed that many processes.
_SHARE_OF_HOST = 4
_MOST_OF_HOST = ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")
_LOOK = 0.5
_DISK_LOOKS = 4
_DISK_SLACK = 32 << 20
_HINT = "Run as root, or delegate a control group with memory, pids and cpu to this user."
FULL_MEMORY, FULL_DISK = "its memory was full", "its disk was full"
FULL_TASKS = "gVisor needed more tasks of the host than its sandbox may have, for too many processes at once"


class Limits:
    """Of one sandbox; `job` has the members of `Resources`, `strict`, and `kernel_disk`. `cull` ends what runs in it.

    Attributes:
        broken: the limit for which this has ended the sandbox, as the second half of a sentence.

    Raises:
        StartFailed: something that was asked for cannot be held here; nothing was made.
    """

    def __init__(self, box: str, job: Mapping[str, Any], cull: Callable[[], None]) -> None:
        self._box = box
        self._job = job
        self._cull = cull
        self._used_disk = 0
        self._looks = 0
        self.broken: str | None = None
        hierarchy = cgroups.find()
        held = frozenset() if hierarchy is None else hierarchy.controllers
        self.group = None if hierarchy is None else cgroups.Group(hierarchy, os.path.basename(box))
        if job["cpu"] is not None and "cpu" not in held:
            raise StartFailed("A cpu limit needs a writable control group.", "unsupported", _HINT)
        self.enforcement = {
            "memory": "kernel" if self.group else "polled",
            "pids": "kernel",
            "cpu": "none" if job["cpu"] is None else "kernel",
            "disk": "kernel" if job["kernel_disk"] else "polled",
        }
        polled = sorted(name for name, who in self.enforcement.items() if who == "polled")
        if job["strict"] and polled:
            raise StartFailed(
                f"strict=True, but here the limit on {' and '.join(polled)} can only be polled.", "unsupported", _HINT
            )

    @property
    def _most_memory(self) -> int:
        memory: int = self._job["memory"]
        return memory + memory // 4 + _OVERHEAD

    def begin(self) -> None:
        """Make the group. Raises OSError."""
        if self.group is not None:
            self.group.make()
            self.group.limit(self._most_memory, most_tasks(self._job["pids"]), None)

    def enter(self) -> None:
        """Put this process under the limits."""
        if self.group is not None:
            self.group.add(os.getpid())

    def slow_down(self) -> None:
        """Hold the processor, too; only now, so that a start does not take the longer the less it may use."""
        if self.group is not None and self._job["cpu"] is not None:
            self.group.limit_cpu(self._job["cpu"])

    def look(self) -> float:
        """Look after what the kernel does not hold; gives the seconds until the next time."""
        if "polled" not in self.enforcement.values():
            return float("inf")
        self._looks += 1
        if self.enforcement["memory"] == "polled" and self.memory() > self._most_memory:
            self.broken = FULL_MEMORY
        elif self.enforcement["disk"] == "polled" and self._looks % _DISK_LOOKS == 0:
            self._look_at_disk()
        if self.broken:
            tree.kill_all(os.getpid())
        return _LOOK

    def _look_at_disk(self) -> None:
        """What runs is ended when there is too much and it becomes more; all of it, when there is far too much."""
        most: int = self._job["disk"]
        beyond = most + most // 4 + _DISK_SLACK
        try:
            used = usage.disk(f"{self._box}/{FILES}", beyond)
        except usage.TooDeep:
            used = beyond + 1
        if used > beyond:
            self.broken = FULL_DISK
        elif used > max(most, self._used_disk):
            self._cull()
        self._used_disk = used

    def memory(self) -> int:
        """Bytes, gVisor's own among them."""
        return usage.memory(tree.descendants(os.getpid())) if self.group is None else self.group.memory_used()

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed somebody for memory."""
        kills = -1 if self.group is None else self.group.open_kills()
        if kills < 0:
            return False
        with open(kills, encoding="ascii") as file:
            words = [line.split() for line in file]
        return any(each[0] == "oom_kill" and int(each[1]) > 0 for each in words if len(each) == 2)

    def out_of_tasks(self) -> bool:
        """Whether the kernel has refused it a task."""
        return self.group is not None and self.group.has_refused_tasks()

    def end(self) -> None:
        """Kill who is in the group, and remove it. Raises OSError."""
        if self.group is not None:
            self.group.kill()

    def remove(self) -> None:
        """Everybody in it is dead. Raises OSError."""
        if self.group is not None:
            self.group.remove()


def most_tasks(processes: int) -> int:
    """How many tasks of the host a sandbox may have that may have so many processes."""
    least = processes * _TASKS_EACH
    share = min(map(_number_in, _MOST_OF_HOST)) // _SHARE_OF_HOST
    return _TASKS_OWN + min(processes * max(_TASKS_EACH, processes + _THREADS_OWN), max(least, share))


def _number_in(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())
