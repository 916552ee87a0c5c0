"""Locks between servers: files in the state directory, which the kernel frees when their process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import StoreError
from ..home import state_dir
from ..io import drive
from .calls import InterruptibleIO

_PAUSE = 0.02


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Alone among all threads and processes that ask for this name. Whoever waits can be cancelled.

    Raises:
        StoreError: the state directory cannot be used.
        Cancelled: the call of this thread was cancelled while it waited.
    """
    path = os.path.join(state_dir(), f"{name}.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreError(f"The lock {path} cannot be opened: {error.strerror}.") from error
    io = InterruptibleIO()
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                drive(io.sleep(_PAUSE))
        yield
    finally:
        os.close(fd)
