"""Walking a tree by descriptors: no path is looked up twice, and no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Any, Iterator, List, NamedTuple, Optional, Type

from .refusal import file_refusal

MAX_DEPTH = 128
"""Each level keeps descriptors open. What is deeper is left out or refused."""

_PAUSE_EVERY = 32


class Step(NamedTuple):
    """An entry: its path below the start, the descriptor of its directory, and its name in that."""

    path: str
    directory: int
    name: bytes
    stat: os.stat_result
    left: bool = False

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.stat.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.stat.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.stat.st_mode)

    def link_target(self) -> Optional[str]:
        """None where that may not be known, as for some links of /proc."""
        try:
            return os.readlink(self.name, dir_fd=self.directory).decode("utf-8", "surrogateescape")
        except OSError:
            return None


class _Level:
    """An open directory and how far it has been read."""

    def __init__(self, fd: int, entry: Optional[Step]) -> None:
        self.fd = fd
        self.entry = entry
        self.names: Any = os.scandir(fd)

    def close(self) -> None:
        self.names.close()
        os.close(self.fd)


class Walk:
    """Takes over the descriptor of a directory that is open for reading.

    Args:
        forgiving: directories that may not be read are counted in `skipped`, rather than an error.
        pruning: so are those that lie too deep.
    """

    def __init__(self, fd: int, *, forgiving: bool = False, pruning: bool = False) -> None:
        self.skipped = 0
        self._forgiving = forgiving
        self._pruning = pruning
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

    def entries(self, *, recursive: bool = True, leaving: bool = False) -> Iterator[Optional[Step]]:
        """Every entry, a directory before its content, and with `leaving` once more after it.

        Now and then None, where the caller should let others have a turn. What vanishes meanwhile is
        left out.

        Raises:
            Refused: the tree is too deep, and is not to be pruned.
            OSError: a directory cannot be read.
        """
        seen = 0
        while self._levels:
            seen += 1
            if seen % _PAUSE_EVERY == 0:
                yield None
            level = self._levels[-1]
            found = self._read(level)
            step = level.entry if found is None else self._step(level, found.name)
            if found is None:
                self._levels.pop().close()
            elif step is not None:
                yield step
                if not (recursive and step.is_directory) or self._descend(step):
                    continue
            if leaving and step is not None:
                yield step._replace(left=True)

    def _descend(self, step: Step) -> bool:
        """False when it cannot be entered and shall be passed over."""
        if len(self._levels) >= MAX_DEPTH:
            if self._pruning:
                self.skipped += 1
                return False
            raise file_refusal(errno.EINVAL, step.path, "Deeper than %d directories" % MAX_DEPTH)
        try:
            self._push(open_directory(step.name, step.directory), step)
        except OSError as error:
            self._forgive(error, step.path)
            return False
        return True

    def _read(self, level: _Level) -> Any:
        """The next entry of a directory; None at its end, which may come early."""
        try:
            return next(level.names, None)
        except OSError as error:
            self._forgive(error, level.entry.path if level.entry else ".")
            return None

    def _step(self, level: _Level, name: str) -> Optional[Step]:
        """None when it is gone."""
        encoded = os.fsencode(name)
        text = encoded.decode("utf-8", "surrogateescape")
        path = text if level.entry is None else level.entry.path + "/" + text
        try:
            return Step(path, level.fd, encoded, os.stat(encoded, dir_fd=level.fd, follow_symlinks=False))
        except OSError as error:
            self._forgive(error, path)
            return None

    def _forgive(self, error: OSError, path: str) -> None:
        """Pass over what is gone, and what may not be looked at if that was said."""
        if error.errno in (errno.ENOENT, errno.ESRCH):
            return
        if not self._forgiving or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise file_refusal(error.errno or errno.EIO, path) from error
        self.skipped += 1


def open_directory(name: bytes, directory: int) -> int:
    """Open a directory that is no link. Raises OSError."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
