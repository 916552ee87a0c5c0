"""Who has a file open to write to, below some directory of a sandbox; to name in an error, and to end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

_ACCESS = os.O_ACCMODE
_LONGEST = 80


class Holder(NamedTuple):
    """A process, with its number inside the sandbox and outside."""

    pid: int
    outside: int
    command: str
    path: str


def writers(pids: Iterable[int], directory: str) -> list[Holder]:
    """Those of some processes that can still write to a file below `directory`."""
    found = []
    for pid in pids:
        path = _open_to_write(pid, directory) or _mapped_to_write(pid, directory)
        if path:
            found.append(Holder(_number_inside(pid), pid, _command(pid), path))
    return found


def _open_to_write(pid: int, directory: str) -> str:
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = os.readlink(f"/proc/{pid}/fd/{name}")
            if path.startswith(f"{directory}/") and _flags(pid, name) & _ACCESS != os.O_RDONLY:
                return path
    except OSError:
        pass  # it is gone, or closed one meanwhile
    return ""


def _flags(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
        return next((int(line.split()[1], 8) for line in file if line.startswith("flags:")), 0)


def _mapped_to_write(pid: int, directory: str) -> str:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.rstrip("\n").split(None, 5)
                if len(fields) > 5 and fields[1][3] == "s" and fields[5].startswith(f"{directory}/"):
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
