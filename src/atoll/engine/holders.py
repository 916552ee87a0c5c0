"""Who has a file open to write to, below some directory of a sandbox; to name in an error, and to end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

_ACCESS = os.O_ACCMODE
_LONGEST = 80
# How long to look, in seconds: nobody else is served meanwhile, and a crowd can have millions of files open.
_SECONDS = 2.0


class Holder(NamedTuple):
    """A process, with its number inside the sandbox and outside."""

    pid: int
    outside: int
    command: str
    path: str


def writers(pids: Iterable[int], *directories: str) -> list[Holder]:
    """Those of some processes that can still write to a file below one of some directories.

    Raises:
        TimeoutError: they have more files open than can be looked at.
    """
    found = []
    below = tuple(f"{directory}/" for directory in directories)
    until = time.monotonic() + _SECONDS
    for pid in pids:
        path = _open_to_write(pid, below, until) or _mapped_to_write(pid, below)
        if path:
            found.append(Holder(_number_inside(pid), pid, _command(pid), path))
        _check(until)
    return found


def _check(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError("The sandbox's processes have more files open than can be looked at")


def _open_to_write(pid: int, below: tuple[str, ...], until: float) -> str:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return ""  # it is gone
    for name in names:
        _check(until)
        if path := _written(pid, name, below):
            return path
    return ""


def _written(pid: int, name: str, below: tuple[str, ...]) -> str:
    try:
        path = os.readlink(f"/proc/{pid}/fd/{name}")
        if path.startswith(below) and _flags(pid, name) & _ACCESS != os.O_RDONLY:
            return path
    except OSError:
        pass  # it is gone, or closed that one meanwhile
    return ""


def _flags(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
        return next((int(line.split()[1], 8) for line in file if line.startswith("flags:")), 0)


def _mapped_to_write(pid: int, below: tuple[str, ...]) -> str:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.rstrip("\n").split(None, 5)
                if len(fields) > 5 and fields[1][3] == "s" and fields[5].startswith(below):
                    return fields[5]
    except OSError:
        pass
    return ""


def _number_inside(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[-1]) for line in file if line.startswith("NSpid:")), pid)
    except OSError:
        return pid


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4 * _LONGEST).rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    shown = "".join(each if each.isprintable() else "?" for each in words)
    return shown[:_LONGEST] or "a context"
