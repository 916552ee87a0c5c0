"""Removing what nobody needs: versions, drafts of the dead, files in no tree. Never what is current or in use."""

from __future__ import annotations

import contextlib
import os
import time

from .. import procid
from . import records
from .blobs import Blobs
from .drafts import Drafts
from .versions import Versions

_DAY = 86400.0


def settle(home: str) -> None:
    """Before anything is stored: remove what a process that was killed has left.

    After the machine itself went down, files that no version holds may be there by name only, so they go too.

    Raises:
        OSError: the disk refuses.
    """
    if _boot_of(home) == procid.current().boot:
        if Drafts(home).sweep():
            Blobs(home).collect()
        return
    _collect_versions(home)
    Blobs(home).collect_alone()
    with Drafts(home).new() as draft:
        with open(f"{draft}/boot", "w", encoding="ascii") as file:
            file.write(procid.current().boot)
        os.replace(f"{draft}/boot", f"{home}/boot")
    _note_collected(home)


def tidy(home: str, versions: Versions) -> None:
    """After a codebase changed: remove its old versions, and once a day whatever else there is to remove.

    Raises:
        OSError: the disk refuses.
    """
    gone = versions.collect()
    Drafts(home).sweep()
    if _collected(home) < time.time() - _DAY:
        collect(home)
    elif gone:
        Blobs(home).collect(gone)


def collect(home: str) -> int:
    """Remove all that can be removed; how many files that were, and 0 while somebody stores files.

    Raises:
        OSError: the disk refuses.
    """
    os.makedirs(home, mode=0o700, exist_ok=True)
    _collect_versions(home)
    count = Blobs(home).collect()
    _note_collected(home)
    return count


def _collect_versions(home: str) -> None:
    for directory in records.directories(home):
        Versions(home, os.path.basename(directory)).collect()
    Drafts(home).sweep()


def _note_collected(home: str) -> None:
    with contextlib.suppress(FileNotFoundError), open(f"{home}/collected", "w", encoding="ascii"):
        os.utime(f"{home}/collected")


def _boot_of(home: str) -> str:
    try:
        with open(f"{home}/boot", encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _collected(home: str) -> float:
    try:
        return os.stat(f"{home}/collected").st_mtime
    except FileNotFoundError:
        return 0.0
