"""numpy's element types in JSON, without numpy: both sides hand it in, and neither believes the other.

A simple type is numpy's own text for it (`<f8`, `<M8[ns]`); a structured one a list of `[name, type]` or
`[name, type, shape]`, with `["", size]` for a gap. Types that hold Python objects have no form.
"""

from __future__ import annotations

import re
from typing import Any, List, Tuple

MAX_DIMENSIONS = 32
_MAX_FIELDS = 1000
_MAX_DEPTH = 8
_MAX_LENGTH = 1 << 62
_MAX_HOLLOW = 1 << 20  # elements of no bytes, which numpy may give some
_SIMPLE = re.compile(r"[<>|][biufcSUV][0-9]{1,9}|[<>][mM]8(\[[0-9]{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")


class BadType(ValueError):
    """No element type that may pass. The message is a sentence without a subject."""


def describe(dtype: Any) -> Any:
    """The JSON of a numpy.dtype.

    Raises:
        BadType: it holds Python objects, or a type that only its own side knows.
    """
    if dtype.hasobject:
        raise BadType("holds Python objects")
    if dtype.names is None:
        if dtype.subdtype is not None or not _SIMPLE.fullmatch(dtype.str):
            raise BadType("has the element type %s" % str(dtype)[:100])
        return dtype.str
    return _describe_fields(dtype)


def _describe_fields(dtype: Any) -> List[Any]:
    described: List[Any] = []
    at = 0
    for name in dtype.names:
        kind, offset, *titles = dtype.fields[name]
        if titles:
            raise BadType("has fields with titles beside their names")
        if offset < at:
            raise BadType("has fields that overlap or are out of order")
        if offset > at:
            described.append(["", offset - at])
        base, shape = kind.subdtype or (kind, ())
        described.append([name, describe(base), list(shape)] if shape else [name, describe(base)])
        at = offset + kind.itemsize
    if dtype.itemsize > at:
        described.append(["", dtype.itemsize - at])
    return described


def parse(numpy: Any, described: Any, depth: int = 0) -> Any:
    """The numpy.dtype of a JSON value, which may come from anybody.

    Raises:
        BadType: it is none that `describe` gives.
    """
    try:
        return _parsed(numpy, described, depth)
    except BadType:
        raise
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise BadType("is none that numpy knows: %s" % str(error)[:200]) from None


def _parsed(numpy: Any, described: Any, depth: int) -> Any:
    if isinstance(described, str):
        if not _SIMPLE.fullmatch(described):
            raise BadType("is not simple: %s" % ascii(described)[:100])
        return numpy.dtype(described)
    if not isinstance(described, list) or not 0 < len(described) <= _MAX_FIELDS or depth > _MAX_DEPTH:
        raise BadType("is neither a text nor a list of some fields")
    names: List[str] = []
    kinds: List[Any] = []
    offsets: List[int] = []
    at = 0
    for field in described:
        name, size, kind = _field(numpy, field, depth)
        if kind is not None:
            names.append(name)
            kinds.append(kind)
            offsets.append(at)
        at += size
    if at >= 1 << 31:
        raise BadType("has elements of %d bytes" % at)
    return numpy.dtype({"names": names, "formats": kinds, "offsets": offsets, "itemsize": at})


def _field(numpy: Any, field: Any, depth: int) -> Tuple[str, int, Any]:
    """Name, size and type of one field; a gap has no type."""
    if not isinstance(field, list) or len(field) not in (2, 3) or not isinstance(field[0], str):
        raise BadType("has a field that is none")
    if type(field[1]) is int:
        if field[0] or len(field) != 2 or not 0 < field[1] < 1 << 31:
            raise BadType("has a gap that is none")
        return "", field[1], None
    kind = parse(numpy, field[1], depth + 1)
    if len(field) == 3:
        lengths = shape(field[2])
        volume(lengths, kind.itemsize, 1 << 31)
        if not kind.itemsize:
            raise BadType("has a field of many elements of no bytes")
        kind = numpy.dtype((kind, lengths))
    return field[0], kind.itemsize, kind


def shape(value: Any) -> Tuple[int, ...]:
    """The lengths of an array's sides. Raises BadType."""
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        raise BadType("has no shape of at most %d sides" % MAX_DIMENSIONS)
    if not all(type(length) is int and 0 <= length < _MAX_LENGTH for length in value):
        raise BadType("has a side whose length is none")
    return tuple(value)


def volume(lengths: Tuple[int, ...], size: int, limit: int) -> int:
    """The bytes of an array. Raises BadType above `limit`, also where an empty side makes nothing of huge ones."""
    total, largest = size, max(size, 1)
    for length in lengths:
        total *= length
        largest *= max(length, 1)
    if size == 0 and largest > _MAX_HOLLOW:
        raise BadType("has sides of %s, with elements of no bytes" % list(lengths))
    if largest > max(limit, 1 << 31):
        raise BadType("has sides of %s, which take more than %d bytes" % (list(lengths), limit))
    return total
