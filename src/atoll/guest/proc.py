"""The process table, from /proc."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional

from .marks import mark_of

TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEAD = frozenset("ZXx")
_NO_MARK = -1
_COMMAND_LIMIT = 1024


class Task(NamedTuple):
    """A process. `start` counts ticks since boot, `mark` is -1 where it cannot be read."""

    pid: int
    parent: int
    state: str
    start: int
    cpu_ticks: int
    memory: int
    mark: int

    @property
    def alive(self) -> bool:
        return self.state not in _DEAD


def tasks() -> Dict[int, Task]:
    """Every process that can be seen, by pid."""
    found = {}
    for pid in pids():
        task = read_task(pid)
        if task is not None:
            found[pid] = task
    return found


def pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def newest_pid() -> bytes:
    """The pid of the process or thread that was born last, of all that can be seen."""
    return _read("/proc/loadavg").rpartition(b" ")[2]


def read_task(pid: int) -> Optional[Task]:
    """None when it is gone."""
    fields = _stat("/proc/%d/stat" % pid)
    if not fields:
        return None
    lives = fields if fields[0].decode("ascii") not in _DEAD else _living_thread(pid) or fields
    return Task(
        pid=pid,
        parent=int(fields[1]),
        state=lives[0].decode("ascii"),
        start=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        memory=int(lives[21]) * _PAGE,
        mark=_mark(pid),
    )


def _stat(path: str) -> List[bytes]:
    """The fields from the state on; none where it is gone."""
    stat = _read(path)
    return stat[stat.rindex(b")") + 2 :].split() if stat else []


def _living_thread(pid: int) -> List[bytes]:
    """`_stat` of a thread that lives on: the first one may have ended before others, and counts as a zombie then."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    for thread in threads:
        fields = _stat("/proc/%d/task/%s/stat" % (pid, thread))
        if fields and fields[0].decode("ascii") not in _DEAD:
            return fields
    return []


def _mark(pid: int) -> int:
    try:
        return mark_of(pid)
    except OSError:
        return _mark_on_file(pid)


def _mark_on_file(pid: int) -> int:
    """Slower, and readable whoever owns the process: a command may have changed its user."""
    for line in _read("/proc/%d/limits" % pid).splitlines():
        if line.startswith(b"Max file locks"):
            hard = line.split()[4]
            return int(hard) if hard.isdigit() else _NO_MARK
    return _NO_MARK


def command_line(pid: int) -> str:
    """What it was started as, or its name in brackets where that is hidden."""
    words = _read("/proc/%d/cmdline" % pid)[: 4 * _COMMAND_LIMIT].rstrip(b"\0").replace(b"\0", b" ")
    if not words:
        words = b"[%s]" % _read("/proc/%d/comm" % pid).strip()
    return words.decode("utf-8", "replace")[:_COMMAND_LIMIT]


def children(table: Dict[int, Task]) -> Dict[int, List[int]]:
    below: Dict[int, List[int]] = {}
    for task in table.values():
        below.setdefault(task.parent, []).append(task.pid)
    return below


def _read(path: str) -> bytes:
    """b"" when the process is gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16) or b""
    except OSError:
        return b""
