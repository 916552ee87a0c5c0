"""The open files of an instance, and the directories that it begins with.

Nothing else of the host can be named: every path is looked up below one of these directories, by the kernel.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

from ..guest.beneath import BENEATH, IN_ROOT
from ..guest.paths import open_below
from . import wasm_abi as abi

MOST_OPEN = 512
NULL = -2
_FIRST = 3
_PATH_LIMIT = 4096
_PARENT = os.O_PATH | os.O_DIRECTORY


class Opened:
    """One open file.

    Args:
        fd: the host's descriptor; -1 for what is served otherwise, and NULL for /dev/null.
        kind: as WASI numbers it.
        guest_path: of a directory that the instance begins with, how it calls it.
    """

    def __init__(
        self, fd: int, kind: int, *, writable: bool = True, append: bool = False, guest_path: bytes | None = None
    ) -> None:
        self.fd = fd
        self.kind = kind
        self.writable = writable
        self.append = append
        self.guest_path = guest_path
        self.entries: list[tuple[bytes, int, int]] = []

    def real(self) -> int:
        """The descriptor. Raises OSError where there is none."""
        if self.fd < 0:
            raise abi.failure(errno.ENOTSUP if self.guest_path is None else errno.ENOENT)
        return self.fd

    def regular(self) -> int:
        """The descriptor of a file that can be read and written."""
        if self.kind == abi.DIRECTORY:
            raise abi.failure(errno.EISDIR)
        return self.real()

    def to_write(self) -> int:
        if not self.writable:
            raise abi.failure(errno.EBADF)
        return self.regular()


class Table:
    """Numbers of the instance, and what they stand for."""

    def __init__(self) -> None:
        self._opened: dict[int, Opened] = {}

    def put(self, number: int, opened: Opened) -> None:
        self._opened[number] = opened

    def begin_with(self, guest_path: str, *, writable: bool) -> None:
        """A directory that the instance finds open. It remembers them all: what is behind one is given later."""
        self._opened[self._free()] = Opened(-1, abi.DIRECTORY, writable=writable, guest_path=guest_path.encode())

    def give(self, guest_path: str, fd: int) -> None:
        """What is behind one of them from now on; -1 for nothing."""
        name = guest_path.encode()
        for opened in self._opened.values():
            if opened.guest_path == name:
                self._close(opened)
                opened.fd = fd

    def get(self, number: int) -> Opened:
        try:
            return self._opened[number]
        except KeyError:
            raise abi.failure(errno.EBADF) from None

    def add(self, opened: Opened) -> int:
        """The number of a file that was just opened; it is closed again where there is no number left."""
        if len(self._opened) >= MOST_OPEN:
            self._close(opened)
            raise abi.failure(errno.EMFILE)
        number = self._free()
        self._opened[number] = opened
        return number

    def close(self, number: int) -> None:
        opened = self.get(number)
        if opened.guest_path is None and opened.fd != -1 and number >= _FIRST:
            self._close(self._opened.pop(number))  # what it has begun with stays

    def _close(self, opened: Opened) -> None:
        if opened.fd > 2:
            os.close(opened.fd)

    def _free(self) -> int:
        number = _FIRST
        while number in self._opened:
            number += 1
        return number


def open_at(directory: Opened, path: bytes, flags: int, mode: int = 0) -> int:
    """A descriptor of what lies below a directory. Raises OSError."""
    if directory.kind != abi.DIRECTORY:
        raise abi.failure(errno.ENOTDIR)
    if len(path) >= _PATH_LIMIT:
        raise abi.failure(errno.ENAMETOOLONG)
    if b"\0" in path:
        raise abi.failure(errno.EINVAL)
    # The ones that it begins with are roots for it, so that links lead where they do for the file operations.
    how = IN_ROOT if directory.guest_path is not None else BENEATH
    return open_below(directory.real(), path or b".", flags, mode, how)


def open_plain(directory: Opened, path: bytes, flags: int, mode: int) -> tuple[int, os.stat_result]:
    """The same, for a file or a directory and nothing else: to open a pipe or a device may take for ever."""
    fd = open_at(directory, path, flags | os.O_NONBLOCK | os.O_NOCTTY, mode)
    try:
        found = os.fstat(fd)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise abi.failure(errno.EPERM)
    except BaseException:
        os.close(fd)
        raise
    return fd, found


class Parent:
    """The directory that holds the last name of a path, while something is done there."""

    def __init__(self, directory: Opened, path: bytes, *, to_write: bool = True) -> None:
        if to_write and not directory.writable:
            raise abi.failure(errno.EROFS)
        above, _, self.name = path.rstrip(b"/").rpartition(b"/")
        if self.name in (b"", b".", b".."):
            raise abi.failure(errno.EINVAL)
        self.fd = open_at(directory, above or (b"/" if path.startswith(b"/") else b"."), _PARENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_story: object) -> None:
        os.close(self.fd)
