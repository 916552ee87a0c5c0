"""Plain values as JSON text, exactly: what comes out equals what went in, but that tuples come as lists.

Both sides use this module. Integers that are too long to be written as decimals within Python's own limit on
digits make the text a *marked* one: each object is wrapped as `{"d": {…}}` and each long integer is `{"i": "0x…"}`.
"""

from __future__ import annotations

import json
from typing import Any, Callable, NamedTuple, Optional, Union

TEXT_LIMIT = 64 << 20
"""Of one value's text. Decoded, the smallest pieces take twenty times the memory of their text."""

DEPTH_LIMIT = 200

# 617 digits; Python can be told to refuse more than 640, and refuses more than 4300 unless told.
_LONG = 2048

Fallback = Callable[[Any], Any]


class Unfit(ValueError):
    """The value, or the text, is none that this module knows. The message is a sentence without a subject."""


class Encoded(NamedTuple):
    text: bytes
    marked: bool


def encode(value: Any, fallback: Optional[Fallback] = None) -> Encoded:
    """The text of a value.

    Args:
        fallback: gives a plain value for one of another type, or raises Unfit.

    Raises:
        Unfit: it holds something that JSON has no form for, is nested too deeply, or is too large.
    """
    check = _Check(fallback)
    plain = check.plain(value, 0)
    if check.long:
        plain = _marked(plain)
    text = json.dumps(plain, separators=(",", ":")).encode("ascii")
    if len(text) > TEXT_LIMIT:
        raise Unfit("takes %d bytes as JSON, and at most %d pass" % (len(text), TEXT_LIMIT))
    return Encoded(text, check.long)


def decode(text: Union[bytes, bytearray], *, marked: bool) -> Any:
    """The value of a text, which may come from anybody.

    Raises:
        Unfit: it is no text of `encode`.
    """
    if len(text) > TEXT_LIMIT:
        raise Unfit("takes %d bytes as JSON, and at most %d pass" % (len(text), TEXT_LIMIT))
    try:
        value = json.loads(text.decode("ascii"))
        return _unmarked(value) if marked else value
    except RecursionError:
        raise Unfit("is nested too deeply") from None
    except ValueError as error:
        raise Unfit("is no JSON: %s" % str(error)[:200]) from None


class _Check:
    """Looks at every part of a value. `long` tells whether an integer needs the marked form."""

    def __init__(self, fallback: Optional[Fallback]) -> None:
        self.long = False
        self._fallback = fallback
        self._parts = 0

    def plain(self, value: Any, depth: int) -> Any:
        """The value in the types that JSON has; the same object where nothing is to be changed."""
        self._parts += 1
        if depth > DEPTH_LIMIT:
            raise Unfit("is nested more than %d deep, or holds itself" % DEPTH_LIMIT)
        if self._parts > TEXT_LIMIT // 2:
            raise Unfit("has more than %d parts" % (TEXT_LIMIT // 2))
        kind = type(value)
        if kind is str or kind is float or kind is bool or value is None:
            return value
        if kind is int:
            self.long = self.long or value.bit_length() > _LONG
            return value
        if isinstance(value, (list, tuple)):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self._key(key): self.plain(item, depth + 1) for key, item in value.items()}
        return self._other(value, depth)

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise Unfit("has a key of the type %s, and JSON has texts as keys only" % type(key).__name__)
        return str.__str__(key)

    def _other(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return self.plain(int.__index__(value), depth)
        if isinstance(value, float):
            return float.__float__(value)
        if self._fallback is None:
            raise Unfit("holds a value of the type %s, which JSON has no form for" % type(value).__name__)
        return self.plain(self._fallback(value), depth + 1)


def _marked(value: Any) -> Any:
    if type(value) is int and value.bit_length() > _LONG:
        return {"i": hex(value)}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    if isinstance(value, dict):
        return {"d": {key: _marked(item) for key, item in value.items()}}
    return value


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and isinstance(value.get("i"), str):
        return int(value["i"], 16)
    inner = value.get("d")
    if len(value) == 1 and isinstance(inner, dict):
        return {key: _unmarked(item) for key, item in inner.items()}
    raise Unfit("has an object without its mark")
