"""Errors of a cell as its author expects them: without the guest's own frames."""

from __future__ import annotations

import linecache
import os
import traceback
import types
from typing import Any, Dict, Optional, Set, Tuple

from . import complaints

TEXT_LIMIT = 1 << 16
_NAME_LIMIT = 1000

_GUEST = os.path.dirname(os.path.abspath(__file__))
_REMEMBERED_SOURCES = 1000
_traceback_of = BaseException.__dict__["__traceback__"].__get__


def remember(count: int, source: str) -> str:
    """Keep the source of a cell for tracebacks; gives the name to compile it under."""
    name = "<cell %d>" % count
    lines = [line + "\n" for line in source.splitlines()] if "\n" in source else [source + "\n"]
    linecache.cache[name] = (len(source), None, lines, name)
    if count > _REMEMBERED_SOURCES:
        linecache.cache.pop("<cell %d>" % (count - _REMEMBERED_SOURCES), None)
    return name


def describe(error: BaseException) -> Tuple[Dict[str, str], bool]:
    """Name, value and traceback, and whether one had to be cut. Whatever its class does, there are all three."""
    name, value, story = name_of(error), text_of(error), _story(error)
    cut = max(len(value), len(story)) > TEXT_LIMIT or len(name) > _NAME_LIMIT
    return {"name": name[:_NAME_LIMIT], "value": value[:TEXT_LIMIT], "traceback": story[-TEXT_LIMIT:]}, cut


def name_of(error: BaseException) -> str:
    """Of its class."""
    return complaints.name_of(type(error)) or "<unnamed>"


def inside(error: BaseException) -> Optional[types.TracebackType]:
    """The part of its traceback that begins in a cell; all of it if none does."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    return trace or error.__traceback__


def text_of(error: BaseException) -> str:
    try:
        if isinstance(error, SystemExit):
            return "0" if error.code is None else _exact(str(error.code))
        return _exact(str(error))
    except BaseException:  # noqa: BLE001  # an exception may be broken too, and its class may raise anything
        return "<its text cannot be shown>"


def _exact(text: str) -> str:
    """Without the methods that a class of texts has of its own."""
    return str.__str__(text)


def _story(error: BaseException) -> str:
    try:
        return _exact(_told(error))
    except BaseException:  # noqa: BLE001  # telling it runs code of its class
        return "%s%s: %s\n" % (_frames(error), name_of(error), text_of(error))


def _frames(error: BaseException) -> str:
    """Where it was raised, without asking the error for anything."""
    try:
        frames = traceback.extract_tb(_traceback_of(error))
        shown = [frame for frame in frames if not frame.filename.startswith(_GUEST)]
        return "Traceback (most recent call last):\n%s" % "".join(traceback.format_list(shown))
    except BaseException:  # noqa: BLE001  # the memory or the stack may be at its end
        return "<its traceback cannot be shown>\n"


def _told(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and _is_ours_alone(error):
        return "".join(traceback.format_exception_only(type(error), error))
    summary = traceback.TracebackException(type(error), error, error.__traceback__)
    _clean(summary, set())
    return "".join(summary.format())


def _is_ours_alone(error: BaseException) -> bool:
    """Whether it was raised before the cell ran."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_GUEST):
            return False
        trace = trace.tb_next
    return True


def _clean(summary: Any, seen: Set[int]) -> None:
    if summary is None or id(summary) in seen:
        return
    seen.add(id(summary))
    summary.stack[:] = [frame for frame in summary.stack if not frame.filename.startswith(_GUEST)]
    _clean(summary.__cause__, seen)
    _clean(summary.__context__, seen)
    for member in getattr(summary, "exceptions", None) or ():
        _clean(member, seen)
