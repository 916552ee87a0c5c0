"""A configuration file of somebody else's: read whole, backed up, and replaced in one step or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from ..errors import InvalidInput
from .locks import exclusive

_LARGEST = 64 << 20
_ATTEMPTS = 20


class Found(NamedTuple):
    """A file as it was read. `path` is where it really is, behind symbolic links; `data` is None for no file."""

    path: str
    data: bytes | None
    mode: int = 0o644

    @property
    def text(self) -> str:
        """Raises InvalidInput for what is no UTF-8."""
        try:
            return (self.data or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{self.path} is left as it is: it is no UTF-8 (byte {error.start}).") from None


def read(path: str) -> Found:
    """Raises InvalidInput for what is no file, or too large; OSError."""
    real = os.path.realpath(path)
    try:
        kind = os.stat(real)
    except FileNotFoundError:
        return Found(real, None)
    if not stat.S_ISREG(kind.st_mode):
        raise InvalidInput(f"{path} is no file.")
    if kind.st_size > _LARGEST:
        raise InvalidInput(f"{path} has {kind.st_size} bytes, which is no configuration.")
    with open(real, "rb") as file:
        return Found(real, file.read(), stat.S_IMODE(kind.st_mode))


class Changed(InvalidInput):
    """Somebody else has written the file since it was read."""


def update(path: str, change: Callable[[str], str]) -> tuple[bool, str | None]:
    """Give a file the text that `change` makes of its text; whether that was another one, and the path of the backup.

    Of several that do so at once each finds what the others have written. Programs that know nothing of that are
    noticed: then it begins anew.

    Raises:
        InvalidInput: as `change` and `read`; or somebody writes it again and again. Nothing was done.
        StoreError, OSError: it cannot be written; nothing was done.
    """
    with exclusive("mcp-install"):
        for _ in range(_ATTEMPTS):
            found = read(path)
            text = change(found.text)
            if text == found.text:
                return False, None
            try:
                return True, replace(found, text)
            except Changed:
                continue
    raise InvalidInput(
        f"{path} is being changed by somebody else all the time.", hint="Close the client, and try again."
    )


def replace(found: Found, text: str) -> str | None:
    """Put `text` in its place; the path of the backup, if there was something to back up.

    Raises:
        Changed: somebody else has changed it meanwhile; nothing was done.
        OSError: it cannot be written; nothing was done.
    """
    os.makedirs(os.path.dirname(found.path), exist_ok=True)
    fresh = f"{found.path}.atoll-{os.urandom(4).hex()}"
    backup = None
    try:
        _write(fresh, text.encode("utf-8"), found)
        backup = None if found.data is None else _back_up(found)
        # Last of all, so that as little time as can be is left for others.
        if read(found.path).data != found.data:
            raise Changed(f"{found.path} was changed by somebody else just now.", hint="Try again.")
        os.replace(fresh, found.path)
    except BaseException:
        _remove(fresh)
        if backup is not None:
            _remove(backup)
        raise
    return backup


def _back_up(found: Found) -> str:
    number = 1
    while True:
        path = f"{found.path}.atoll-backup" + ("" if number == 1 else f"-{number}")
        try:
            _write(path, found.data or b"", found)
        except FileExistsError:
            number += 1
        else:
            return path


def _write(path: str, data: bytes, like: Found) -> None:
    """A new file with the mode and owner of another."""
    # Closed to others until it has its mode: it may hold keys.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        if like.data is None:
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(fd, like.mode & ~mask)
        else:
            owner = os.stat(like.path)
            if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                try:
                    os.fchown(fd, owner.st_uid, owner.st_gid)
                except PermissionError:
                    pass  # then it becomes ours, as with every editor
            os.fchmod(fd, like.mode)
        os.fsync(fd)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
