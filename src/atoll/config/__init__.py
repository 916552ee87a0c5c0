"""Settings of agents. A file is overruled by the environment, and that by what a program or a flag says.

A file that is merely found, as in somebody's repository, is not believed: of it only limits are taken that are stricter
than usual, until `atoll config trust` says otherwise. `warnings` tell what was left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import InvalidInput
from . import files
from .table import BY_NAME, ENTRIES, entry_of

__all__ = ["Setting", "Settings", "check", "load"]

_NONE: Mapping[str, Any] = MappingProxyType({})
# How alike a variable's name must be to a setting's, to be taken for a slip.
_ALIKE = 0.87


class Setting(NamedTuple):
    """`source` is "default", "file PATH", "environment NAME" or "argument"."""

    name: str
    value: Any
    source: str


class Settings:
    """Every setting, as an attribute or by its name in brackets."""

    def __init__(self, found: Mapping[str, Setting], warnings: list[str], path: str | None) -> None:
        self._found = dict(found)
        self.warnings = warnings
        self.path = path

    def __getitem__(self, name: str) -> Any:
        """Raises InvalidInput for a name that no setting has."""
        return self._found[entry_of(name).name].value

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_found", {})
        if name not in found:
            raise AttributeError(f"There is no setting {name!r}.")
        return found[name].value

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._found.values())

    def __repr__(self) -> str:
        changed = ", ".join(each.name for each in self if each.source != "default")
        return f"Settings({changed or 'defaults'})"

    def items(self) -> list[Setting]:
        """All of them, in the order of the table."""
        return list(self._found.values())

    def source(self, name: str) -> str:
        """Where a value comes from. Raises InvalidInput as `[]` does."""
        return self._found[entry_of(name).name].source


def check(name: str, value: Any) -> Any:
    """The value in its usual form.

    Raises:
        InvalidInput: no setting has that name, or not such a value.
    """
    return entry_of(name).check(value)


def load(
    arguments: Mapping[str, Any] = _NONE,
    *,
    path: str | None = None,
    start: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """All settings, from every place that may have them.

    Args:
        arguments: what a program or a flag says; None is as good as nothing.
        path: the file to read. It is trusted, and so is one that $ATOLL_CONFIG names.
        start: the directory to look for a file in, and above; unless given, the working directory.

    Raises:
        InvalidInput: a setting is unknown or has a value that it cannot have; the message says where.
        StoreError: what files are trusted cannot be found out.
    """
    env = os.environ if environ is None else environ
    found = {entry.name: Setting(entry.name, _own(entry.default), "default") for entry in ENTRIES}
    file, warnings = _file(path or env.get("ATOLL_CONFIG") or None, start)
    if file is not None:
        found.update(file)
    found.update(_from_environment(env, warnings))
    for name, value in arguments.items():
        if value is not None:
            found[name] = Setting(name, check(name, value), "argument")
    used = next((each.source.removeprefix("file ") for each in found.values() if each.source.startswith("file ")), None)
    return Settings(found, warnings, used)


def _own(default: Any) -> Any:
    """Nobody changes the table by changing what they got of it."""
    return dict(default) if isinstance(default, dict) else default


def checked(file: files.File) -> dict[str, Any]:
    """What a file says, in its usual form. Raises InvalidInput that names file and key."""
    values = {}
    for name, value in file.values.items():
        try:
            values[name] = check(name, value)
        except InvalidInput as error:
            raise InvalidInput(f"{file.path}: {error}") from None
    return values


def _file(named: str | None, start: str | None) -> tuple[dict[str, Setting] | None, list[str]]:
    if named is not None:
        file = files.read_named(named)
        return _as_settings(file, checked(file)), []
    try:
        path = files.find(start or os.getcwd())
    except FileNotFoundError:  # the working directory was removed
        path = None
    if path is None:
        return None, []
    file = files.read_found(path)
    if file.problem:
        return None, [f"{path} is not read, since {file.problem}. `--config {path}` reads it all the same."]
    values = checked(file)
    refused = [name for name, value in values.items() if not BY_NAME[name].is_harmless(value)]
    if refused:
        from .trust import is_trusted

        if not is_trusted(file):
            taken = {name: value for name, value in values.items() if name not in refused}
            return _as_settings(file, taken), [_untrusted(path, refused)]
    return _as_settings(file, values), []


def _as_settings(file: files.File, values: dict[str, Any]) -> dict[str, Setting]:
    return {name: Setting(name, value, f"file {file.path}") for name, value in values.items()}


def _untrusted(path: str, names: list[str]) -> str:
    import shlex

    return (
        f"{path} is not trusted, so its {', '.join(names)} {'is' if len(names) == 1 else 'are'} not used. "
        f"Read it, then run: atoll config trust {shlex.quote(path)}"
    )


def _from_environment(environ: Mapping[str, str], warnings: list[str]) -> dict[str, Setting]:
    found = {}
    for entry in ENTRIES:
        text = environ.get(entry.environment, "")
        if not text.strip():
            continue
        try:
            found[entry.name] = Setting(entry.name, entry.parse(text), f"environment {entry.environment}")
        except InvalidInput as error:
            raise InvalidInput(f"{entry.environment}: {error}") from None
    warnings += _slips(environ)
    return found


def _slips(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like a setting's and are none. Others belong to other parts of atoll."""
    known = {entry.environment for entry in ENTRIES}
    strange = [name for name in environ if name.startswith("ATOLL_") and name not in known]
    if not strange:
        return []
    from difflib import get_close_matches

    near = {name: get_close_matches(name, known, n=1, cutoff=_ALIKE) for name in strange}
    return [f"{name} is no setting; did you mean {guess[0]}?" for name, guess in near.items() if guess]
