"""What a twin of a context does not have: it is told before anything is forked."""

from __future__ import annotations

import os
from typing import Any

from .shadows import PAGE

_MOST = 100


def losses(process: int) -> dict[str, Any]:
    """Open files, other threads and child processes, by name. Of each some, if there are very many."""
    try:
        return {"files": _files(process), "threads": _threads(process), "children": _children(process)}
    except OSError:
        return {"files": [], "threads": [], "children": []}  # it is gone, which is told when it is needed


def _files(process: int) -> list[str]:
    found: list[str] = []
    for name in sorted(os.listdir(f"/proc/{process}/fd"), key=int):
        path = os.readlink(f"/proc/{process}/fd/{name}")
        if int(name) >= PAGE and path.startswith("/") and len(found) < _MOST:
            found.append(path)
    return found


def _threads(process: int) -> list[str]:
    others = [task for task in os.listdir(f"/proc/{process}/task") if int(task) != process]
    return [_text(f"/proc/{process}/task/{task}/comm") for task in others[:_MOST]]


def _children(process: int) -> list[str]:
    found: list[str] = []
    for task in os.listdir(f"/proc/{process}/task")[:_MOST]:
        found += _text(f"/proc/{process}/task/{task}/children").split()
    return [_text(f"/proc/{child}/cmdline").replace("\0", " ").strip() for child in found[:_MOST]]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1000).strip()
    except OSError:
        return ""
