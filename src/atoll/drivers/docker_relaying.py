"""Exchanging what a running container's workspace stands on: for other rules, or without what was changed.

As `engine.restack` does it for the jail: the old mount is made read-only by the kernel, which refuses while anybody has
a file open to write to, the new one takes its place, and every process goes on in the directory of the same name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable

from ..engine import holders, jail, kernel, places, usage
from ..engine.holding import Hold
from ..engine.settings import BirthFailed

# How long the whole exchange may take, in seconds.
_EXCHANGE = 10.0


class _Written(Exception):
    """Somebody has a file open to write to. Never leaves this module."""


def exchange(first: int, workdir: str, tree: int, *, force: bool) -> None:
    """Put a detached mount in place of the workspace of a container; `first` is its first process.

    Raises:
        BirthFailed: somebody holds a file open to write to, or it cannot be held; all is as it was.
        OSError: the host refused something; all is as it was.
    """
    until = time.monotonic() + _EXCHANGE
    while True:
        try:
            _exchange(first, workdir, tree, until, force=force)
            return
        except _Written:
            _refuse_or_end(first, workdir, force=force)
        if time.monotonic() > until - _EXCHANGE / 2:
            raise BirthFailed("The sandbox's processes open files faster than they can be ended.", "busy")


def _exchange(first: int, workdir: str, tree: int, until: float, *, force: bool) -> None:
    with Hold(lambda: usage.descendants(first), until=until, force=force) as hold:
        directories = {pid: path for pid in hold.processes if (path := _directory(pid, workdir)) is not None}
        with jail.inside(first):
            _seal(workdir)
            kernel.umount(workdir, kernel.MNT_DETACH)
            places.attach({workdir: tree})
        for pid, path in directories.items():
            _move(hold.move, pid, (path, workdir))


def _move(move: Callable[[int, str], None], pid: int, candidates: tuple[str, ...]) -> None:
    """One that cannot be moved stays where nothing can be changed any more, and finds that out."""
    for path in candidates:
        with contextlib.suppress(OSError):
            move(pid, path)
            return


def _directory(pid: int, workdir: str) -> str | None:
    """Where a process is, if that is in the workspace."""
    try:
        path = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
    return path if path == workdir or path.startswith(f"{workdir}/") else None


def _seal(workdir: str) -> None:
    fd = os.open(workdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kernel.mount_setattr(fd, kernel.MOUNT_ATTR_RDONLY, recursive=True)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _Written from None
        raise
    finally:
        os.close(fd)


def _refuse_or_end(first: int, workdir: str, *, force: bool) -> None:
    """Raises BirthFailed, unless those that hold files open shall be ended, and are."""
    found = holders.writers(usage.descendants(first), workdir)
    others = [each for each in found if each.outside != first]
    if not found:
        raise BirthFailed(f"Something in {workdir} is open to write to, so it cannot be exchanged now.", "busy")
    if not force or not others:
        raise BirthFailed(
            f"Process {found[0].pid} ({found[0].command}) has {found[0].path} open to write to, so it cannot be "
            "exchanged now; wait until it is closed, or give force=True to end that process.",
            "busy",
        )
    for each in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.outside, signal.SIGKILL)
