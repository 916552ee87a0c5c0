"""Environment variables that a kernel can carry."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InvalidInput
from .text import kind_of, shown

# execve refuses a longer "NAME=value" (MAX_ARG_STRLEN, with the NUL at its end).
MAX_ENTRY = (128 << 10) - 1
MAX_TOTAL = 512 << 10


def check_env(env: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of `env`, every name and value checked.

    Raises:
        InvalidInput: a name or a value that execve would refuse or garble, or too much of it.
    """
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise InvalidInput(f"env is {kind_of(env)}; give a mapping such as {{'LANG': 'C'}}.")
    total = 0
    for name, value in env.items():
        total += _check_entry(name, value)
    if total > MAX_TOTAL:
        raise InvalidInput(f"env has {total} bytes; at most {MAX_TOTAL} fit. Write a file instead.")
    return dict(env)


def _check_entry(name: object, value: object) -> int:
    """The size of one entry in bytes. The value is never shown: it may be a secret."""
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise InvalidInput(f"env has the name {shown(name)}; a name is text, not empty, without '=' and NUL.")
    if not isinstance(value, str):
        raise InvalidInput(f"env has {kind_of(value)} for {shown(name)}; values are text.")
    if "\0" in value:
        raise InvalidInput(f"env has a NUL byte in the value of {shown(name)}, which no environment can hold.")
    try:
        size = len(f"{name}={value}".encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise InvalidInput(f"env has half a surrogate pair in {shown(name)}, which stands for no byte.") from None
    if size > MAX_ENTRY:
        raise InvalidInput(f"env has {size} bytes in {shown(name)}; the kernel takes at most {MAX_ENTRY}.")
    return size
