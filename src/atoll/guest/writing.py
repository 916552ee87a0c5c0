"""New content takes the place of old only when it is whole."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Optional, Type

from .paths import lstat, rename
from .refusal import file_refusal

TEMPORARY = b".atoll-new-"
_DEFAULT_MODE = 0o644


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
