"""New content takes the place of old only when it is whole: by its name, or after it was kept."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Iterator, Optional, Type

from .descriptors import write_all
from .paths import Root, lstat, rename
from .refusal import file_refusal

TEMPORARY = b".atoll-new-"
_DEFAULT_MODE = 0o644
_IN_MEMORY = 1 << 20


class NewFile:
    """A file under a temporary name in the directory of its final one; gone unless `replace` is called."""

    def __init__(self, directory: int, name: bytes) -> None:
        self._directory = directory
        self._name = name
        self._temporary = TEMPORARY + os.urandom(8).hex().encode("ascii")
        self.fd = os.open(
            self._temporary,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
            dir_fd=directory,
        )

    def replace(self, mode: Optional[int], overwrite: bool = True) -> None:
        """Give it its name and permissions. Raises OSError; EEXIST without `overwrite`."""
        os.fchmod(self.fd, _DEFAULT_MODE if mode is None else mode)
        rename(self._directory, self._temporary, self._directory, self._name, overwrite)
        self._temporary = b""

    def __enter__(self) -> NewFile:  # noqa: PYI034  # Python 3.8 has no Self
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        os.close(self.fd)
        if self._temporary:
            try:
                os.unlink(self._temporary, dir_fd=self._directory)
            except FileNotFoundError:
                pass  # somebody inside removed it; it is gone, which is what counts


class Spool:
    """Input that is kept until all of it has come: in memory, or what is much in a file without a name.

    Args:
        directory: where that file may be; else it is in /tmp.
    """

    def __init__(self, root: Root, directory: int) -> None:
        self._root = root
        self._directory = directory
        self._kept = bytearray()
        self._fd = -1
        self.size = 0

    def add(self, data: bytes) -> None:
        """Raises OSError, Refused: there is no room for it."""
        self._kept += data
        self.size += len(data)
        if len(self._kept) > _IN_MEMORY:
            if self._fd < 0:
                self._fd = self._unnamed()
            write_all(self._fd, self._kept)
            self._kept = bytearray()

    def _unnamed(self) -> int:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(b".", flags, 0o600, dir_fd=self._directory)
        except OSError:  # a directory that cannot be written to, or a file system that does not know of these
            return self._root.open("/tmp", flags, 0o600)  # noqa: S108  # the sandbox's own

    def content(self) -> Iterator[bytes]:
        """All of it, in pieces."""
        if self._fd >= 0:
            os.lseek(self._fd, 0, os.SEEK_SET)
            while True:
                data = os.read(self._fd, _IN_MEMORY)
                if not data:
                    break
                yield data
        yield bytes(self._kept)

    def __enter__(self) -> Spool:  # noqa: PYI034  # Python 3.8 has no Self
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def check_replaceable(directory: int, name: bytes, path: str, links: bool = False) -> Optional[int]:
    """The permissions of a regular file that is to be replaced; None when there is none.

    With `links` a link may be replaced too.

    Raises:
        Refused: what is there is a directory, a pipe, a socket or a device.
    """
    found = lstat(directory, name)
    if found is None or (links and stat.S_ISLNK(found.st_mode)):
        return None
    if stat.S_ISDIR(found.st_mode):
        raise file_refusal(errno.EISDIR, path)
    if not stat.S_ISREG(found.st_mode):
        raise file_refusal(errno.EINVAL, path, "Not a regular file")
    return stat.S_IMODE(found.st_mode)
