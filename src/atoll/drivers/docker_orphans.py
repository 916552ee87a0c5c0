"""Containers whose steward is gone: found by their labels, and removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from .docker_container import HOME_LABEL, ID_LABEL, name_of
from .docker_engine import Engine, Refused, Unreachable
from .docker_ground import lift

_EVERY = 60.0


def sweep_now_and_then(engine: Engine, home: str) -> None:
    """`sweep`, unless somebody has done it within the last minute."""
    stamp = f"{home}/docker/.swept"
    with contextlib.suppress(OSError):
        if time.time() - os.stat(stamp).st_mtime < _EVERY:
            return
    with contextlib.suppress(OSError), open(stamp, "w", encoding="ascii"):
        os.utime(stamp)
        sweep(engine, home)


def sweep(engine: Engine, home: str) -> list[str]:
    """Remove every container of a state directory that nobody keeps; gives the ids of their sandboxes.

    Raises:
        Refused, Unreachable: the engine does not tell which there are.
    """
    filters = {"label": [f"{HOME_LABEL}={home}", ID_LABEL]}
    removed = []
    for container in engine.get("/containers/json", all=True, filters=filters) or ():
        name = (container.get("Labels") or {}).get(ID_LABEL, "")
        box = f"{home}/docker/{os.path.basename(name)}"
        if f"/{name_of(box)}" not in (container.get("Names") or ()) or is_kept(box):
            continue
        with contextlib.suppress(Refused, Unreachable):
            engine.delete(f"/containers/{container['Id']}", force=True, v=True)
            removed.append(name)
        lift(box)
    return removed


def is_kept(box: str) -> bool:
    """Whether somebody lives who has claimed a box: a steward does before it makes anything."""
    try:
        fd = os.open(box, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
