"""Room on the host's disk for what sandboxes write.

A sandbox's disk is a sparse file: it promises more than the host's disk may have. A write that is refused later, when
it is written out, is lost without a word to who made it. So where room gets short, ext4 is told to hold back what the
host's disk could not take (`reserved_clusters`, which is looked at with each write), and a write inside fails with
ENOSPC at once. That is done by looking, the more often the less room there is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import Any

from . import disk
from .layers import Layers
from .layout import Layout
from .settings import BirthFailed
from .watch import Steps, Watch

# What is left to the host: a share of its disk, but no more than this many bytes.
_SHARE, _MOST = 20, 256 << 20
# A sandbox needs this many bytes before it has written anything.
_LEAST = 1 << 20
# How fast room can be used up, in bytes a second, and how often to look at least and at most, in seconds.
_RATE = 2 << 30
_SHORT, _LONG, _EACH = 0.25, 30.0, 0.01
_BLOCK = 4096
_TABLE = "/sys/fs/ext4"


def spare(directory: str) -> int:
    """Bytes that sandboxes may still use of the file system that a directory is on.

    Raises:
        OSError: it is gone.
    """
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize - min(found.f_blocks * found.f_frsize // _SHARE, _MOST)


def check(directory: str) -> None:
    """Refuse to make a sandbox where it could write nothing.

    Raises:
        BirthFailed: "disk_full".
    """
    if spare(directory) < _LEAST:
        found = os.statvfs(directory)
        left = found.f_bavail * found.f_frsize >> 20
        raise BirthFailed(
            f"The disk of atoll's state directory has only {left} MB left, which is kept free for the host; "
            "remove sandboxes and snapshots, or set ATOLL_HOME to a directory on another disk.",
            "disk_full",
        )


class Headroom(Watch):
    """Keeps one sandbox's disk from promising what the host's does not have.

    Args:
        directory: is on the host's disk.
        image: tells which file the sandbox's disk is in now.
        place: a path on the sandbox's disk, or on what lies over it.
        quota: how much it may hold, in bytes.
    """

    @classmethod
    def needed(cls, born: dict[str, Any], places: Layout, sandbox: str) -> Headroom | None:
        """One for a sandbox with layers; None where it writes on the host's disk itself."""
        if born["facts"]["limits"]["disk"] != "kernel":
            return None
        box, layers = places.box(sandbox), Layers(places)
        return cls(box, lambda: f"{box}/{layers.stack(sandbox).top}", f"/proc/{born['first']}/root/tmp", born["quota"])

    def __init__(self, directory: str, image: Callable[[], str], place: str, quota: int) -> None:
        super().__init__()
        self._directory = directory
        self._image = image
        self._place = place
        self._quota = quota
        self._usual: dict[str, int] = {}

    def _steps(self) -> Steps:
        try:
            allowed = spare(self._directory) // 2
        except OSError:
            allowed = self._quota  # it was removed, and its sandboxes end
        is_short = allowed < self._quota
        # Before then nobody can have used up what is left over, or what was allowed.
        wait = (allowed if is_short else allowed - self._quota) / _RATE
        if is_short or self._usual:
            # A sandbox may be ending, or stand on another disk by now.
            with contextlib.suppress(OSError, ValueError):
                unwritten, disks = yield from _unwritten(self._directory)
                # All of them ask for all: together they must not be busy with it.
                wait = max(wait, disks * _EACH)
                self._hold_back(max(0, allowed - unwritten // 2))
        return min(_LONG, max(_SHORT, wait))

    def _hold_back(self, allowed: int) -> None:
        table = f"{_TABLE}/{os.path.basename(disk.device_of(self._image()))}"
        with open(f"{table}/reserved_clusters", "r+", encoding="ascii") as file:
            held = int(file.read())
            usual = self._usual.setdefault(table, held)
            found = os.statvfs(self._place)
            wanted = min(max(usual, found.f_bfree - allowed // found.f_frsize), found.f_blocks - 1)
            if wanted != held:
                file.seek(0)
                file.write(str(wanted))
            if wanted == usual:
                self._usual.clear()


def _unwritten(directory: str) -> Generator[None, None, tuple[int, int]]:
    """Bytes that sandboxes have written and this file system was not asked for yet, and how many disks are on it."""
    found = disks = 0
    here = os.stat(directory).st_dev
    for device, backing in disk.devices():
        with contextlib.suppress(OSError, ValueError):
            if backing.device == here:
                disks += 1
                with open(f"{_TABLE}/{os.path.basename(device)}/delayed_allocation_blocks", encoding="ascii") as file:
                    found += int(file.read()) * _BLOCK
        yield
    return found, disks
