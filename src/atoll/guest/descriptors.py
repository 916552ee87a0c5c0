"""Descriptors that are made several at a time, and closed together when something goes wrong."""

from __future__ import annotations

import os
from typing import Iterable, List, Tuple


def pipe(made: List[int]) -> Tuple[int, int]:
    """Both ends, which also go into `made`."""
    ends = os.pipe2(os.O_CLOEXEC)
    made += ends
    return ends


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
