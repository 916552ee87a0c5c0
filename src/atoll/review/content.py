"""Reading files that somebody else may be writing to, in bounded time and memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple

# Text up to this size is compared line by line.
LARGEST_TEXT = 4 << 20

_CHUNK = 1 << 20
_ATTEMPTS = 3


class Content(NamedTuple):
    """What was read. `digest` is always that of these very bytes, None for what cannot be read; `data` is None for
    what is large. `steady` is False when somebody wrote to the file meanwhile, each time that it was tried.
    """

    digest: str | None
    data: bytes | None
    steady: bool = True


UNREADABLE = Content(None, None)


class Allowance:
    """How many bytes may still be read.

    A file may say that it is eight exabytes long and hold nothing. So each file may cost a multiple of what it takes
    up on disk, and all of them together some gigabytes more. It takes that up once, however many names it has.
    """

    def __init__(self, spare: int = 4 << 30, factor: int = 8) -> None:
        self._spare = spare
        self._factor = factor
        self._paid: set[tuple[int, int]] = set()

    def covers(self, found: os.stat_result) -> bool:
        """Whether a file may be read; if so, it is taken off."""
        same = (found.st_dev, found.st_ino)
        missing = found.st_size - (0 if same in self._paid else self._factor * found.st_blocks * 512)
        if found.st_nlink > 1:
            self._paid.add(same)
        if missing <= 0:
            return True
        if missing > self._spare:
            return False
        self._spare -= missing
        return True


def read_content(fd: int, write: Callable[[bytes], object] | None = None, start: Callable[[], object] | None = None,
                 ) -> Content:  # fmt: skip
    """Read an open file to the end that it had at the beginning; again when it changed meanwhile.

    Args:
        write: gets every piece, for a copy.
        start: called before every attempt, so that a copy can begin anew.

    Raises:
        OSError: it cannot be read.
    """
    content = None
    for _ in range(_ATTEMPTS):
        if start is not None:
            start()
        content = _read_once(fd, write)
        if content.steady:
            break
    assert content is not None  # noqa: S101 - for the type checker
    return content


def _read_once(fd: int, write: Callable[[bytes], object] | None) -> Content:
    before = os.fstat(fd)
    kept: list[bytes] | None = [] if before.st_size <= LARGEST_TEXT else None
    digest = hashlib.sha256()
    offset = 0
    while offset < before.st_size:
        piece = os.pread(fd, min(_CHUNK, before.st_size - offset), offset)
        if not piece:
            break
        offset += len(piece)
        digest.update(piece)
        if kept is not None:
            kept.append(piece)
        if write is not None:
            write(piece)
    steady = offset == before.st_size and _version(before) == _version(os.fstat(fd))
    return Content(digest.hexdigest(), None if kept is None else b"".join(kept), steady)


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def link_content(target: str) -> Content:
    """The target of a link, as what the link holds."""
    raw = os.fsencode(target)
    return Content(hashlib.sha256(raw).hexdigest(), raw)
