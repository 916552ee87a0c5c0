"""The files of a sandbox on a disk of their own, so that the kernel holds the limit on them.

The disk is a file of the box. While the sandbox runs it is mounted over the directory `files`, in a mount namespace
that only the steward and what it has started are in. What lies in that directory when a sandbox starts, a copy of
another's files, is taken over.
"""

from __future__ import annotations

import contextlib
import os

from .. import disk, kernel
from ..copying import copy_tree
from ..removal import remove_tree
from ..settings import BirthFailed
from .wall import FILES, StartFailed

_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
_IMAGE, _PLACE = "disk", "mount"


class Storage:
    """Only for root.

    Args:
        size: bytes; None is a plain directory without a limit.
        empty: the directory where empty disks are kept.
    """

    def __init__(self, box: str, size: int | None, empty: str) -> None:
        self._files = f"{box}/{FILES}"
        self._image = f"{box}/{_IMAGE}"
        self._place = f"{box}/{_PLACE}"
        self._size = size
        self._empty = empty
        self._apart = False
        self._mounted = False

    def open(self) -> None:
        """Have the files in place.

        Raises:
            StartFailed: the disk is too small for what it begins with.
            OSError: the host refuses a mount.
        """
        if not self._apart:
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            self._apart = True
        if self._size is None:
            return
        begins = bool(os.listdir(self._files))
        try:
            device, held = self._attach(fresh=begins)
        except BirthFailed as error:
            raise StartFailed(str(error), error.code) from error
        try:
            os.makedirs(self._place, mode=0o700, exist_ok=True)
            kernel.mount(device, self._place, "ext4", _FLAGS)
        finally:
            os.close(held)
        self._mounted = True
        if begins:
            self._take_over()
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{self._place}/{FILES}", 0o755)
        kernel.mount(f"{self._place}/{FILES}", self._files, None, kernel.MS_BIND)

    def _attach(self, *, fresh: bool) -> tuple[str, int]:
        if os.path.exists(self._image):
            # Of the time before: its end may still be under way.
            disk.await_release(self._image)
        if fresh or not os.path.exists(self._image):
            disk.copy_sparse(disk.prepare(self._empty, self._size or 0), self._image)
        return disk.attach(self._image)

    def _take_over(self) -> None:
        try:
            copy_tree(self._files, f"{self._place}/{FILES}")
        except OSError as error:
            raise StartFailed(f"What the sandbox begins with does not fit on its disk: {error.strerror}.") from error
        remove_tree(self._files)
        os.mkdir(self._files, 0o700)

    def forsake(self) -> None:
        """What is not written yet need not be."""
        if self._mounted:
            disk.shut_down(self._place)

    def close(self) -> None:
        """Let go of the disk."""
        if not self._mounted:
            return
        self._mounted = False
        for path in (self._files, self._place):
            with contextlib.suppress(OSError):  # it did not come so far
                kernel.umount(path)

    def used(self) -> int | None:
        """Bytes; None where there is no disk."""
        if not self._mounted:
            return None
        found = os.statvfs(self._place)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
