"""Which configuration files the user trusts: by path and content, so that a file that changes is trusted no longer."""

from __future__ import annotations

import json
import os

from ..errors import InvalidInput, StoreError
from ..home import state_dir
from . import files

_STORE = "trusted.json"
_LOCK = "trusted.lock"


def is_trusted(file: files.File) -> bool:
    """Raises StoreError when that cannot be found out."""
    return _read().get(os.path.realpath(file.path)) == file.digest


def trust(path: str) -> str:
    """Trust a file as it is now; its real path. What a file says must hold before it is trusted.

    Raises:
        InvalidInput: it is no configuration, or others could have made it.
        StoreError: it cannot be kept in mind.
    """
    from . import checked

    real = os.path.realpath(path)
    file = files.read_found(real)
    if file.problem:
        raise InvalidInput(f"{real} cannot be trusted: {file.problem}.")
    checked(file)
    _change(real, file.digest)
    return real


def untrust(path: str) -> bool:
    """Trust it no longer; whether it was trusted. Raises StoreError."""
    return _change(os.path.realpath(path), None)


def _change(path: str, digest: str | None) -> bool:
    """Whether there was something before."""
    import fcntl

    home = state_dir()
    try:
        lock = os.open(os.path.join(home, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = _read()
            before = known.pop(path, None)
            if digest is not None:
                known[path] = digest
            _write(os.path.join(home, _STORE), known)
        finally:
            os.close(lock)
    except OSError as error:
        raise StoreError(f"What is trusted cannot be written to {home}: {error.strerror}.") from error
    return before is not None


def _read() -> dict[str, str]:
    path = os.path.join(state_dir(), _STORE)
    try:
        with open(path, "rb") as file:
            known = json.loads(file.read())
        if isinstance(known, dict) and all(isinstance(each, str) for each in known.values()):
            return known
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        pass
    raise StoreError(f"{path}, which holds what is trusted, cannot be read.", hint="Remove it, and trust again.")


def _write(path: str, known: dict[str, str]) -> None:
    """All of it or nothing, whenever the process or the machine ends."""
    draft = f"{path}.new"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(known, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(fd)
    os.rename(draft, path)
