"""Refusals of the file API are noted for `audit()` before they are raised; what succeeds pays nothing for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import FileDenied, FileError, FileMissing, InvalidInput, StoreError
from ..policy.paths import check_path, in_workspace
from ..types import Level, Permissions
from .auditing import note

if TYPE_CHECKING:
    from ..policy.rules import Matcher
    from .record import Record

# The methods of AsyncFiles that are refused something, with what an audit calls them. Others are made of these.
_OPERATIONS = {
    "read_bytes": "read", "write": "write", "list": "list", "info": "info", "mkdir": "mkdir", "remove": "remove",
    "move": "move", "copy": "copy", "upload": "upload", "download": "download", "watch": "watch", "search": "search",
}  # fmt: skip
_PATHS = ("path", "source", "target", "remote")
_RANK: dict[Level, int] = {"none": 0, "view": 1, "read": 2, "write": 3}

C = TypeVar("C", bound=type)
T = TypeVar("T")
Method = Callable[..., Coroutine[Any, Any, T]]


def noting(files: C) -> C:
    """Have the methods of `AsyncFiles` note what the sandbox refuses, before they raise it."""
    for name, operation in _OPERATIONS.items():
        setattr(files, name, _noting(getattr(files, name), operation))
    return files


def _noting(method: Method[T], operation: str) -> Method[T]:
    @wraps(method)
    async def noted(self: Any, *args: Any, **kwargs: Any) -> T:
        try:
            return await method(self, *args, **kwargs)
        except (FileDenied, FileMissing) as error:
            if error.inside and self._record is not None:
                import inspect

                call = inspect.signature(method).bind(self, *args, **kwargs)
                call.apply_defaults()
                given = [check_path(call.arguments[name]) for name in _PATHS if name in call.arguments]
                _note_refusal(self._record, operation, given, error)
            raise

    return noted


def _note_refusal(record: Record, operation: str, given: list[str], error: FileError) -> None:
    workdir, permissions = record.info.spec.workdir, record.info.spec.permissions
    paths = [in_workspace(path, workdir) for path in given]
    if isinstance(error, FileMissing):
        refused = _lacking(permissions, paths, ["view"] * len(paths))
    else:
        refused = _denied(operation, paths, permissions, _told(error, workdir))
    if refused is not None:
        try:
            note(record, "files", operation, [refused])
        except StoreError as trouble:
            error.add_note(f"This could not be noted for audit(): {trouble}")


def _denied(operation: str, paths: list[str], permissions: Permissions | None, told: str | None) -> str:
    """Which of the paths it was. The guest, which may lie, can only choose among these and what is below them."""
    if len(paths) > 1:
        needed: list[Level] = ["write" if operation == "move" else "read", "write"]
        lacking = _lacking(permissions, paths, needed)
        if lacking is not None:
            return lacking
    if told is not None and any(told.startswith(f"{path}/" if path else "") for path in paths):
        return told
    return told if told in paths else paths[-1]


def _lacking(permissions: Permissions | None, paths: list[str], needed: list[Level]) -> str | None:
    """The first path of the workspace to which the rules give less than it needs."""
    if permissions is None:
        return None
    matcher = _matcher(permissions)
    for path, need in zip(paths, needed, strict=True):
        if not path.startswith("/") and _RANK[matcher.level(path)] < _RANK[need]:
            return path
    return None


@lru_cache(maxsize=16)
def _matcher(permissions: Permissions) -> Matcher:
    from ..policy.rules import Matcher

    return Matcher(permissions.rules)


def _told(error: FileError, workdir: str) -> str | None:
    """The path that the guest names, if it can be one."""
    try:
        return in_workspace(check_path(error.path), workdir)
    except InvalidInput:
        return None
