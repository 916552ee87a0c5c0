"""Control groups, version 1 or 2: one group a sandbox, below a parent that belongs to atoll.

`find` says what this host lets us use; a `Group` is made, joined, limited, frozen and removed. Where
nothing is writable `find` gives None and the keeper polls instead, which the sandbox's info declares.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

# With a group for processors each sandbox has as much time as any other, however many processes it has.
_V1 = ("memory", "pids", "freezer", "cpu")
_V1_NEEDED = {"memory", "pids"}
_CPU_PERIOD = 100_000
_TCP_BUFFERS = 64 << 20
_ROOT = "/sys/fs/cgroup"
_PARENT = "atoll"


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel gives a page at a time, of a list of processes too.
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode()
    finally:
        os.close(fd)


class Hierarchy:
    """Where groups can be made: a directory for each controller (v1), or one for all (v2)."""

    def __init__(self, version: int, parents: dict[str, str]) -> None:
        self.version = version
        self.parents = parents

    @property
    def controllers(self) -> frozenset[str]:
        return frozenset(self.parents)


def _v1(root: str) -> Hierarchy | None:
    parents = {}
    for controller in _V1:
        top = f"{root}/{controller}"
        if not os.path.exists(f"{top}/cgroup.procs"):
            continue
        parent = f"{top}/{_PARENT}"
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError:
            continue
        if os.access(parent, os.W_OK):
            parents[controller] = parent
    if not set(parents) >= _V1_NEEDED:
        return None
    return Hierarchy(1, parents)


def _v2_home(root: str) -> str | None:
    """The directory of the group that this process is in, if groups can be made there or above."""
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return root + line[3:].rstrip("/")
    return None


def _v2(root: str) -> Hierarchy | None:
    if not os.path.exists(f"{root}/cgroup.controllers"):
        return None
    here = _v2_home(root)
    # A group with processes cannot delegate controllers, so climb to one that already does.
    while here and here.startswith(root):
        try:
            enabled = set(_read(f"{here}/cgroup.subtree_control").split())
            if not {"memory", "pids"} <= enabled:
                write(f"{here}/cgroup.subtree_control", "+memory +pids +cpu")
            parent = f"{here}/{_PARENT}"
            os.makedirs(parent, exist_ok=True)
            write(f"{parent}/cgroup.subtree_control", "+memory +pids +cpu")
        except OSError:
            here = os.path.dirname(here)
            continue
        return Hierarchy(2, dict.fromkeys(("memory", "pids", "cpu", "freezer"), parent))
    return None


def find(root: str = _ROOT) -> Hierarchy | None:
    """The hierarchy to use on this host, or None. Makes atoll's parent group if it can."""
    try:
        return _v2(root) or _v1(root)
    except OSError:
        return None


def leave_callers(hierarchy: Hierarchy | None) -> None:
    """The caller's control group may be limited, or killed with the caller; ours must not be."""
    if hierarchy is None:
        return
    for parent in set(hierarchy.parents.values()):
        target = parent if hierarchy.version == 1 else f"{parent}/zygote"
        try:
            os.makedirs(target, exist_ok=True)
            with open(f"{target}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
        except OSError as error:
            sys.stderr.write(f"This process stays in its caller's control group: {error}.\n")


def pass_through(doors: list[int]) -> None:
    """Move this process, which has one thread only, into a group by its `doors`, and close them. Raises OSError."""
    for door in doors:
        os.write(door, b"0")
        os.close(door)


class Group:
    """The control group of one sandbox."""

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self._hierarchy = hierarchy
        self._name = name

    def _path(self, controller: str) -> str:
        return f"{self._hierarchy.parents[controller]}/{self._name}"

    def _paths(self) -> list[str]:
        return sorted({self._path(c) for c in self._hierarchy.parents})

    def make(self) -> None:
        for path in self._paths():
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        if self._hierarchy.version == 1:
            # Without a limit of its own, what sits in the buffers of TCP is not counted at all.
            with contextlib.suppress(FileNotFoundError):
                write(f"{self._path('memory')}/memory.kmem.tcp.limit_in_bytes", str(_TCP_BUFFERS))

    def add(self, pid: int) -> None:
        """Move a process in. What it forks from now on is in too."""
        for path in self._paths():
            write(f"{path}/cgroup.procs", str(pid))

    def enter(self) -> None:
        """Move this process in, which has one thread only. That is quick; `add` may take long. Raises OSError."""
        pass_through(self.doors())

    def doors(self) -> list[int]:
        """What `pass_through` takes, for a process that will not find the group by its path. Raises OSError."""
        name = "tasks" if self._hierarchy.version == 1 else "cgroup.procs"
        return [os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC) for path in self._paths()]

    def limit(self, memory: int, pids: int, cpu: float | None) -> None:
        """Set the limits on the whole tree.

        Raises:
            OSError: the kernel refused one.
        """
        if self._hierarchy.version == 2:
            write(f"{self._path('memory')}/memory.max", str(memory))
            with contextlib.suppress(FileNotFoundError):
                write(f"{self._path('memory')}/memory.swap.max", "0")
            with contextlib.suppress(FileNotFoundError):
                write(f"{self._path('memory')}/memory.oom.group", "0")
            write(f"{self._path('pids')}/pids.max", str(pids))
        else:
            self._limit_memory(memory)
            write(f"{self._path('pids')}/pids.max", str(pids))
        if cpu is not None:
            self.limit_cpu(cpu)

    def limit_cpu(self, cpu: float) -> None:
        """How many cores all in it may use together. Raises OSError."""
        quota = int(cpu * _CPU_PERIOD)
        if self._hierarchy.version == 2:
            write(f"{self._path('cpu')}/cpu.max", f"{quota} {_CPU_PERIOD}")
            return
        write(f"{self._path('cpu')}/cpu.cfs_period_us", str(_CPU_PERIOD))
        write(f"{self._path('cpu')}/cpu.cfs_quota_us", str(quota))

    def _limit_memory(self, memory: int) -> None:
        """Version 1 takes no limit above the one with swap, so which comes first depends on which way they go."""
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if int(_read(f"{self._path('memory')}/{names[0]}")) < memory:
            names.reverse()
        for name in names:
            try:
                write(f"{self._path('memory')}/{name}", str(memory))
            except FileNotFoundError:
                if name == "memory.limit_in_bytes":  # the other is not there on every host
                    raise

    def limit_processes(self, most: int) -> None:
        """How many tasks may be in it. Who is in it already stays."""
        write(f"{self._path('pids')}/pids.max", str(most))

    def count(self) -> int:
        """How many tasks, threads too, are in it."""
        return int(_read(f"{self._path('pids')}/pids.current"))

    def has_refused_tasks(self) -> bool:
        """Whether somebody in it could not make a task for the limit on these, as far as the kernel tells."""
        try:
            told = _read(f"{self._path('pids')}/pids.events").split()
        except OSError:
            return False
        return told[:1] == ["max"] and told[1] != "0"

    def processes(self) -> list[str]:
        """The pids in it, as this process sees them."""
        return _read(f"{self._path('pids')}/cgroup.procs").split()

    def members(self) -> list[int]:
        """The same as numbers."""
        return [int(pid) for pid in self.processes()]

    @property
    def can_freeze(self) -> bool:
        return "freezer" in self._hierarchy.parents

    def freeze(self, frozen: bool, timeout: float = 2.0) -> None:
        """Stop or continue every process in it.

        Raises:
            TimeoutError: some process did not stop in time; all go on.
        """
        if self._hierarchy.version == 2:
            path = self._path("freezer")
            write(f"{path}/cgroup.freeze", "1" if frozen else "0")
            try:
                self._await(lambda: f"frozen {int(frozen)}" in _read(f"{path}/cgroup.events"), timeout)
            except TimeoutError:
                write(f"{path}/cgroup.freeze", "0")
                raise
            return
        path = self._path("freezer")
        write(f"{path}/freezer.state", "FROZEN" if frozen else "THAWED")
        if not frozen:
            return
        try:
            self._await(lambda: _read(f"{path}/freezer.state").strip() == "FROZEN", timeout)
        except TimeoutError:
            write(f"{path}/freezer.state", "THAWED")
            raise

    def _await(self, done: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError("the processes did not stop in time")
            time.sleep(0.001)

    def open_kills(self) -> int:
        """The file that counts, as `oom_kill`, whom the kernel killed for memory, open; -1 if there is none."""
        if "memory" not in self._hierarchy.controllers:
            return -1
        name = "memory.oom_control" if self._hierarchy.version == 1 else "memory.events"
        try:
            return os.open(f"{self._path('memory')}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return -1

    def memory_used(self) -> int:
        if self._hierarchy.version == 2:
            return int(_read(f"{self._path('memory')}/memory.current"))
        return int(_read(f"{self._path('memory')}/memory.usage_in_bytes"))

    def kill(self) -> None:
        """Kill every process in it. Does nothing where it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.thaw()

    def thaw(self) -> None:
        """Who is frozen, by somebody who was killed since, dies with its next step."""
        name = "cgroup.freeze" if self._hierarchy.version == 2 else "freezer.state"
        if "freezer" in self._hierarchy.parents:
            with contextlib.suppress(FileNotFoundError):
                write(f"{self._path('freezer')}/{name}", "0" if self._hierarchy.version == 2 else "THAWED")

    def remove(self, timeout: float = 2.0) -> None:
        """Remove it; its processes must be dead. Does nothing where it does not exist.

        Raises:
            OSError: it is still busy after the timeout.
        """
        deadline = time.monotonic() + timeout
        for path in self._paths():
            while True:
                try:
                    os.rmdir(path)
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.0005)
                else:
                    break
