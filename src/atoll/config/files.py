"""Finding and reading atoll.toml. One that lies about somewhere is read with care: anybody may have put it there."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..policy.text import shown

NAME = "atoll.toml"
TABLE = "atoll"
_LARGEST = 1 << 20
_SECRET = re.compile(r"(^|_)(key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)


class File(NamedTuple):
    """`problem` says why a file that was found is not read at all."""

    path: str
    digest: str = ""
    values: Mapping[str, Any] = MappingProxyType({})
    problem: str = ""


def find(start: str) -> str | None:
    """The nearest atoll.toml in a directory or one above it, up to the home directory or the root."""
    directory = os.path.realpath(start)
    home = os.path.realpath(os.path.expanduser("~"))
    while True:
        path = os.path.join(directory, NAME)
        if os.path.lexists(path):
            return path
        above = os.path.dirname(directory)
        if directory in (home, above):
            return None
        directory = above


def read_found(path: str) -> File:
    """Read a file that was found, unless others could have made it.

    Raises:
        InvalidInput: it cannot be read, or holds something that no atoll.toml holds.
    """
    data, found = _contents(path)
    problem = _suspicious(found)
    return File(path, problem=problem) if problem else _parsed(path, data)


def read_named(path: str) -> File:
    """Read a file that the user named. Raises as `read_found` does."""
    data, _ = _contents(path)
    return _parsed(os.path.abspath(path), data)


def _suspicious(found: os.stat_result) -> str:
    if found.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user ({found.st_uid})"
    if found.st_mode & stat.S_IWOTH:
        return "everybody can write to it"
    return ""


def _contents(path: str) -> tuple[bytes, os.stat_result]:
    try:
        # Not to wait for whoever would write to it, if it is a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"The configuration {path!r} cannot be read: {reason}.") from None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"The configuration {path!r} is no file: move it away, or name another one.")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise InvalidInput(f"The configuration {path!r} is larger than 1 MiB, which no configuration is.")
    return data, found


def _parsed(path: str, data: bytes) -> File:
    import tomllib

    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"{path} is no TOML: {reason}.") from None
    strays = [key for key in document if key != TABLE]
    values = document.get(TABLE, {})
    if strays or not isinstance(values, dict):
        _refuse_secrets(path, strays)
        what = f"has {shown(strays[0])} outside of [{TABLE}]" if strays else f"has no table [{TABLE}]"
        raise InvalidInput(f"{path} {what}: write all settings below a line with [{TABLE}].")
    _refuse_secrets(path, list(values))
    return File(path, hashlib.sha256(data).hexdigest(), values)


def _refuse_secrets(path: str, names: list[str]) -> None:
    for name in names:
        if _SECRET.search(name):
            variable = "SNIPARA_API_KEY" if "snipara" in name.lower() else "ATOLL_API_KEY"
            raise InvalidInput(
                f"{path}: {shown(name)} does not belong in a file, which is copied and committed: "
                f"set the environment variable {variable} instead."
            )
