"""Limits on a guest that is a process of this machine, and on all that it starts.

As root a control group holds them. Without one they are looked after: see `watchdog`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from .. import cgroups, usage
from ..watchdog import Watchdog
from .wall import StartFailed

_OPEN_FILES = 4096
# Beyond what the user has now: the kernel counts all processes of a user, so that this bounds a bomb and no more.
_SLACK = 512
_HINT = "Run as root, or delegate a control group with memory, pids and cpu to this user."


class Bounds:
    """The limits of one sandbox.

    Args:
        name: of its control group.
        box: its directory, which a limit on the disk is about.
        wanted: the members of `Resources`, and `strict`; if `sparse`, there is more address space than memory, so that
            no limit can be put on that.

    Raises:
        StartFailed: something that was asked for cannot be held here; nothing was made.
    """

    def __init__(self, name: str, box: str, wanted: Mapping[str, Any]) -> None:
        hierarchy = cgroups.find()
        self._wanted = wanted
        self._box = box
        self._group = None if hierarchy is None else cgroups.Group(hierarchy, name)
        held = frozenset() if hierarchy is None else hierarchy.controllers
        if wanted["cpu"] is not None and "cpu" not in held:
            raise StartFailed("A cpu limit needs a writable control group.", "unsupported", _HINT)
        self.enforcement = {
            "memory": "kernel" if "memory" in held else "polled",
            "pids": "kernel" if "pids" in held else "polled",
            "cpu": "none" if wanted["cpu"] is None else "kernel",
            "disk": "none" if wanted["disk"] is None else "polled",
        }
        polled = sorted(name for name, who in self.enforcement.items() if who == "polled")
        if wanted["strict"] and polled:
            raise StartFailed(
                f"strict=True, but here the limit on {' and '.join(polled)} can only be polled.", "unsupported", _HINT
            )
        self._dog: Watchdog | None = None

    def prepare(self) -> None:
        """Make the group. Raises OSError."""
        if self._group is not None:
            self._group.make()
            self._group.limit(self._wanted["memory"], self._wanted["pids"], self._wanted["cpu"])

    def enter(self) -> tuple[int, int | None]:
        """Put this process, which is to be the guest, under the limits.

        Gives descriptors: of its oom_score_adj, and of the count of those whom the kernel killed for memory.
        """
        import resource

        kills = -1
        if self._group is not None:
            self._group.enter()
            kills = self._group.open_kills()
        else:
            memory, most = self._wanted["memory"], _tasks_of_this_user() + self._wanted["pids"] + _SLACK
            if not self._wanted.get("sparse"):
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            _lower(resource.RLIMIT_NPROC, most)
        # One byte, not none: a core file never fits, and only this keeps the kernel from a host's crash reporter.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
        if self._wanted["disk"] is not None:
            _lower(resource.RLIMIT_FSIZE, self._wanted["disk"])
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC), kills if kills >= 0 else None

    def watch(self, guest: int) -> None:
        """Look after what the kernel does not hold, from now on."""
        wanted, held = self._wanted, self.enforcement
        polled = {name: wanted[name] for name, who in held.items() if who == "polled"}
        if polled:
            self._dog = Watchdog(polled.get("memory"), polled.get("disk"), self._box, guest, polled.get("pids"))

    def tend(self, now: float) -> float:
        """See `Wall.tend`."""
        if self._dog is None:
            return float("inf")
        self._dog.look(now)
        return self._dog.due(now)

    def usage(self, guest: int) -> dict[str, Any]:
        """See `Wall.usage`."""
        pids = usage.descendants(guest)
        memory = usage.memory(pids) if self._group is None else self._group.memory_used()
        return {"memory": memory, "processes": len(pids), "cpu_seconds": usage.cpu_seconds(pids)}

    def remove(self) -> None:
        """Kill who is left, and remove the group. Raises OSError."""
        if self._group is not None:
            self._group.kill()
            self._group.remove()


def sweep(name: str) -> None:
    """Remove a group that was left behind, with all in it. Raises OSError."""
    hierarchy = cgroups.find()
    if hierarchy is not None:
        group = cgroups.Group(hierarchy, name)
        group.kill()
        group.remove()


def _lower(kind: int, value: int) -> None:
    """Set a limit, unless there is a lower one already."""
    import resource

    soft, hard = resource.getrlimit(kind)
    known = [limit for limit in (soft, hard, value) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(known), min(known)))


def _tasks_of_this_user() -> int:
    count = 0
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{entry}/task"))
    return count
