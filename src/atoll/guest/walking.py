"""Walking a tree by descriptors: no path is looked up twice, and no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Any, Iterator, List, NamedTuple, Optional, Type

from .refusal import file_refusal

MAX_DEPTH = 128
"""Each level keeps two descriptors open. Deeper trees are refused."""

_PAUSE_EVERY = 32


class Step(NamedTuple):
    """An entry: its path below the start, the descriptor of its directory, and its name in that."""

    path: str
    directory: int
    name: bytes
    stat: os.stat_result
    left: bool = False


class _Level:
    """An open directory and how far it has been read."""

    def __init__(self, fd: int, entry: Optional[Step]) -> None:
        self.fd = fd
        self.entry = entry
        self.names: Iterator[os.DirEntry[str]] = os.scandir(fd)

    def close(self) -> None:
        self.names.close()  # type: ignore[attr-defined]  # an os.scandir iterator has it
        os.close(self.fd)


class Walk:
    """Takes over the descriptor of a directory that is open for reading."""

    def __init__(self, fd: int) -> None:
        self._levels: List[_Level] = []
        self._push(fd, None)

    def _push(self, fd: int, entry: Optional[Step]) -> None:
        try:
            self._levels.append(_Level(fd, entry))
        except OSError:
            os.close(fd)
            raise

    def __enter__(self) -> Walk:  # noqa: PYI034  # Python 3.8 has no Self
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        while self._levels:
            self._levels.pop().close()

    def entries(self, recursive: bool, leaving: bool = False) -> Iterator[Optional[Step]]:
        """Every entry, a directory before its content, and with `leaving` once more after it.

        Now and then None, where the caller should let others have a turn. What vanishes meanwhile is
        left out.

        Raises:
            Refused: the tree is too deep.
            OSError: a directory cannot be read.
        """
        seen = 0
        while self._levels:
            seen += 1
            if seen % _PAUSE_EVERY == 0:
                yield None
            level = self._levels[-1]
            found = next(level.names, None)
            if found is None:
                self._levels.pop().close()
                if leaving and level.entry is not None:
                    yield level.entry._replace(left=True)
                continue
            step = self._step(level, found)
            if step is None:
                continue
            yield step
            if recursive and stat.S_ISDIR(step.stat.st_mode):
                self._descend(step)

    def _step(self, level: _Level, found: Any) -> Optional[Step]:
        name = os.fsencode(found.name)
        try:
            status = os.stat(name, dir_fd=level.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        text = name.decode("utf-8", "surrogateescape")
        path = text if level.entry is None else level.entry.path + "/" + text
        return Step(path, level.fd, name, status)

    def _descend(self, step: Step) -> None:
        if len(self._levels) >= MAX_DEPTH:
            raise file_refusal(errno.EINVAL, step.path, "Deeper than %d directories" % MAX_DEPTH)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(step.name, flags, dir_fd=step.directory)
        except FileNotFoundError:
            return
        self._push(fd, step)
