"""Who may bring a stopped sandbox back: one keeper at a time, and only that one removes anything of it.

The claim is a lock on the sandbox's box, which the kernel takes back however its holder ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from . import sweep
from .layout import Layout
from .settings import BirthFailed


def claim(places: Layout, sandbox: str) -> None:
    """Make this process the one that resumes a sandbox, for as long as it lives.

    Raises:
        BirthFailed: somebody else does, or has, or its files are gone. Nothing of it is this process's to remove.
        OSError: it cannot be told.
    """
    try:
        box = os.open(places.box(sandbox), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BirthFailed("The files of this sandbox are gone: somebody has destroyed it.") from None
    try:
        fcntl.flock(box, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(box)
        raise _taken() from None
    if sweep.is_alive(places, sandbox):
        os.close(box)
        raise _taken()
    # A keeper that was killed leaves its socket, and only who holds the claim may bind it again.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(places.socket(sandbox))


def _taken() -> BirthFailed:
    return BirthFailed("Somebody else is already resuming this sandbox.", "busy")
