"""The file of a context's frozen state: pickles one after the other, then an index in JSON, then where that is.

Between the pickles lie large buffers, those of arrays for instance, each at the beginning of a page: they are written
from where they are in memory, and whoever reads them maps them, so that all who do share the pages until they write.

Whatever is in it was put there by code inside the wall and is read only there.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, BinaryIO, Dict, List, NamedTuple, Sequence, Tuple

_FOOTER = struct.Struct("<QQ8s")
_KIND = b"ATOLLst"
# The first version has no buffers beside its pickles; else it is the same.
_KNOWN, _NEWEST = (b"1", b"2"), b"2"
_MAX_INDEX = 64 << 20


class Span(NamedTuple):
    """Where a pickle is. `buffers` are those that it needs, in the order in which it asks for them: for each its
    number in the index, and whether it must not be written to."""

    at: int
    size: int
    buffers: Sequence[Tuple[int, bool]] = ()


class Place(NamedTuple):
    """Where a buffer is."""

    at: int
    size: int


class Part(NamedTuple):
    """One pickle.

    Args:
        names: the variables in it; of several it is a dictionary, of one the value itself.
        has_code: whether only the same version of Python can read it.
        alone: of several variables, each by itself, for when they cannot be restored together.
    """

    names: List[str]
    span: Span
    has_code: bool
    alone: Dict[str, Span]


class Index(NamedTuple):
    """What is in the file, and what is not. `situation` is what `situation.describe` gave."""

    python: List[int]
    flags: int
    situation: Dict[str, Any]
    names: List[str]
    parts: List[Part]
    lost: Dict[str, str]
    buffers: Sequence[Place] = ()


class Damaged(Exception):
    """It is no such file, or not a whole one."""


def finish(file: BinaryIO, index: Index) -> None:
    """Write the index behind the pickles."""
    at = file.tell()
    text = json.dumps(index._asdict()).encode("ascii")
    file.write(text)
    file.write(_FOOTER.pack(at, len(text), _KIND + _NEWEST))


def read(file: BinaryIO) -> Index:
    """Raises Damaged."""
    try:
        file.seek(-_FOOTER.size, os.SEEK_END)
        at, size, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        if magic[:-1] != _KIND or size > _MAX_INDEX:
            raise Damaged("It does not end as such a file does.")
        if magic[-1:] not in _KNOWN:
            raise Damaged("It was written by a newer version of atoll, in a form that this one does not know.")
        file.seek(at)
        said = json.loads(file.read(size))
        said["parts"] = [
            Part(names, Span(*span), has_code, {name: Span(*where) for name, where in alone.items()})
            for names, span, has_code, alone in said["parts"]
        ]
        said["buffers"] = [Place(*place) for place in said.get("buffers", ())]
        return Index(**said)
    except (OSError, ValueError, TypeError, KeyError, struct.error, AttributeError) as error:
        raise Damaged("%s: %s" % (type(error).__name__, error)) from None
