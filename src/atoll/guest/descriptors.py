"""Descriptors: pairs made and closed together, and writing all of something."""

from __future__ import annotations

import os
from typing import Iterable, List, Tuple, Union


def pipe(made: List[int]) -> Tuple[int, int]:
    """Both ends, which also go into `made`."""
    ends = os.pipe2(os.O_CLOEXEC)
    made += ends
    return ends


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def write_all(fd: int, data: Union[bytes, bytearray]) -> None:
    """To a descriptor that waits. Raises OSError."""
    with memoryview(data) as whole:
        done = 0
        while done < len(whole):
            done += os.write(fd, whole[done:])
