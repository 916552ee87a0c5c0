"""A value in a few words, for people. Runs no code of the value's own type, which might never end."""

from __future__ import annotations

import sys
import types
from typing import Any, Dict, List

from ..wire.values import type_name
from .complaints import name_of

LIMIT = 120
_ITEMS = 6
_DEPTH = 2
_TEXT = 60
_DIGITS = 200
# Their own words are short, and made by the standard library.
_SMALL = ("datetime", "decimal", "fractions", "pathlib", "uuid", "ipaddress")
_BRACKETS: Dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}


def text_of(value: Any) -> str:
    """At most LIMIT characters."""
    try:
        text = _text(value, 0)
    except Exception as error:  # noqa: BLE001  # a broken value is still one to be listed
        text = "<%s: %s>" % (name_of(type(value)), name_of(type(error)))
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"


def size_of(value: Any) -> int:
    """The bytes that it takes by itself; of arrays and tables those of their content."""
    kind = type(value)
    try:
        library = type_name(kind).partition(".")[0]
        if library in ("numpy", "pyarrow"):
            return int(value.nbytes)
        if library == "polars":
            return int(value.estimated_size())
        if library == "pandas" and hasattr(value, "memory_usage"):
            usage = value.memory_usage()
            return int(usage if isinstance(usage, int) else getattr(usage, "sum", lambda: usage)())
        if kind.__module__ == "builtins":
            return sys.getsizeof(value)
        return int(object.__sizeof__(value))
    except Exception:  # noqa: BLE001  # it has no size that can be told
        return 0


def _text(value: Any, depth: int) -> str:
    kind = type(value)
    if value is None or kind in (bool, float, complex, range, type(Ellipsis)):
        return repr(value)
    if kind is int:
        return repr(value) if value.bit_length() < 3 * _DIGITS else "<int of %d bits>" % value.bit_length()
    if kind in (str, bytes, bytearray):
        shown = repr(value[:_TEXT])
        return shown if len(value) <= _TEXT else "%s… (%d)" % (shown, len(value))
    return _container(value, depth) if kind in _BRACKETS else _other(value, depth)


def _other(value: Any, depth: int) -> str:
    if isinstance(value, types.FunctionType):
        return "%s(%s)" % (value.__name__, ", ".join(value.__code__.co_varnames[: value.__code__.co_argcount]))
    if isinstance(value, type):
        return "class %s" % type.__dict__["__name__"].__get__(value)
    if type(value).__module__ in _SMALL:
        return repr(value)
    return _object(value, depth)


def _container(value: Any, depth: int) -> str:
    left, right = tuple(_BRACKETS[type(value)])
    if not value:
        return repr(value)
    if depth >= _DEPTH:
        return "%s… %d%s" % (left, len(value), right)
    shown: List[str] = []
    for item in value.items() if type(value) is dict else value:
        if len(shown) == _ITEMS:
            shown.append("… %d more" % (len(value) - _ITEMS))
            break
        if type(value) is dict:
            shown.append("%s: %s" % (_text(item[0], depth + 1), _text(item[1], depth + 1)))
        else:
            shown.append(_text(item, depth + 1))
    comma = "," if type(value) is tuple and len(value) == 1 else ""
    return left + ", ".join(shown) + comma + right


def _object(value: Any, depth: int) -> str:
    name = type_name(type(value))
    library = name.partition(".")[0]
    if library in ("numpy", "pandas", "polars", "pyarrow") and isinstance(getattr(value, "shape", None), tuple):
        sides = " × ".join(str(side) for side in value.shape)
        kind = getattr(value, "dtype", None)
        parts = [name, sides, "" if kind is None else str(kind)[:_TEXT]]
        return " ".join(part for part in parts if part)
    if library == "numpy":
        return repr(value)
    try:
        members = object.__getattribute__(value, "__dict__")
    except AttributeError:
        members = None
    if type(members) is not dict or not members or depth >= _DEPTH:
        return "<%s>" % name
    some = ["%s=%s" % (key, _text(item, depth + 1)) for key, item in list(members.items())[:_ITEMS] if type(key) is str]
    return "<%s %s%s>" % (name, ", ".join(some), ", …" if len(members) > _ITEMS else "")
