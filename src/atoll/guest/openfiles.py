"""Who in the sandbox has a file open to write to, for a keeper outside who cannot see that."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from .machine import Machine
from .proc import command_line, tasks
from .refusal import invalid

_MOST = 16
_LONGEST = 80


def writers(machine: Machine, places: Optional[List[str]]) -> Dict[str, Any]:
    """Those that have one open below some directories, at most a few of them."""
    if not places:
        raise invalid("'places' must be a list of directories.")
    found: List[Dict[str, Any]] = []
    for pid in sorted(machine.killer.ours(tasks())):
        path = _open_to_write(pid, places)
        if path:
            found.append({"pid": pid, "command": command_line(pid)[:_LONGEST], "path": path})
        if len(found) == _MOST:
            break
    return {"writers": found}


def _open_to_write(pid: int, places: List[str]) -> str:
    try:
        for name in os.listdir("/proc/%d/fd" % pid):
            path = os.readlink("/proc/%d/fd/%s" % (pid, name))
            if any(path.startswith(place.rstrip("/") + "/") for place in places) and _is_writable(pid, name):
                return path
    except OSError:
        pass  # it is gone, or closed one meanwhile
    return ""


def _is_writable(pid: int, name: str) -> bool:
    with open("/proc/%d/fdinfo/%s" % (pid, name), "rb") as file:
        flags = next((int(line.split()[1], 8) for line in file if line.startswith(b"flags:")), 0)
    return flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_PATH
