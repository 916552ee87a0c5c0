"""A directory of the host as a tree stream, without following symbolic links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ..errors import FileError, file_error
from ..policy.text import short
from ..types import Transfer
from ..wire.tree import DIRECTORY, FILE, SYMLINK, Entry, Writer

_PIECE = 1 << 16
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Packing:
    """Gives the stream in pieces; `moved` says afterwards what was in it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._writer = Writer()
        self._counts = dict.fromkeys((FILE, DIRECTORY, SYMLINK, "size"), 0)
        self._skipped: list[str] = []

    @property
    def moved(self) -> Transfer:
        counts, skipped = self._counts, tuple(self._skipped)
        return Transfer(counts[FILE], counts[DIRECTORY], counts[SYMLINK], counts["size"], skipped, special=len(skipped))

    def pieces(self) -> Iterator[bytes]:
        """Raises FileError for what cannot be read: nothing is left out but what is no file at all."""
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            for name in self._names(directory):
                path = f"{directory}/{name}" if directory else name
                try:
                    status = os.lstat(f"{self._root}/{path}")
                    yield from self._entry(path, status)
                except ValueError as error:
                    shown = short(f"{self._root}/{path}")
                    raise FileError(f"{shown} cannot be sent: {error}.", path=path) from error
                except OSError as error:
                    raise _refused(error, f"{self._root}/{path}") from error
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
        yield self._writer.end()

    def _names(self, directory: str) -> list[str]:
        path = f"{self._root}/{directory}"
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise _refused(error, path) from error

    def _entry(self, path: str, status: os.stat_result) -> Iterator[bytes]:
        mode, mtime = status.st_mode & 0o777, status.st_mtime
        if stat.S_ISREG(status.st_mode):
            yield from self._file(path)
        elif stat.S_ISDIR(status.st_mode):
            self._counts[DIRECTORY] += 1
            yield self._writer.entry(Entry(path, DIRECTORY, mode, mtime))
        elif stat.S_ISLNK(status.st_mode):
            self._counts[SYMLINK] += 1
            target = os.readlink(f"{self._root}/{path}")
            yield self._writer.entry(Entry(path, SYMLINK, mode, mtime, target=target))
        else:
            self._skipped.append(path)

    def _file(self, path: str) -> Iterator[bytes]:
        full = f"{self._root}/{path}"
        with open(full, "rb", buffering=0, opener=lambda name, _: os.open(name, _READ)) as file:
            status = os.fstat(file.fileno())
            left = status.st_size
            yield self._writer.entry(Entry(path, FILE, status.st_mode & 0o777, status.st_mtime, left))
            while left:
                piece = file.read(min(left, _PIECE))
                if not piece:
                    raise FileError(f"{short(full)} became shorter while it was read.", path=full)
                left -= len(piece)
                yield self._writer.data(piece)
        self._counts[FILE] += 1
        self._counts["size"] += status.st_size


def _refused(error: OSError, path: str) -> FileError:
    if isinstance(error, FileError):
        return error
    return file_error(error.errno or 0, f"{error.strerror}: {short(path)}", path)
