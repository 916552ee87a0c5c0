"""Errors of a cell as its author expects them: without the guest's own frames."""

from __future__ import annotations

import linecache
import os
import traceback
from typing import Any, Dict, Set, Tuple

TEXT_LIMIT = 1 << 16

_GUEST = os.path.dirname(os.path.abspath(__file__))
_REMEMBERED_SOURCES = 1000


def remember(count: int, source: str) -> str:
    """Keep the source of a cell for tracebacks; gives the name to compile it under."""
    name = "<cell %d>" % count
    lines = [line + "\n" for line in source.splitlines()] if "\n" in source else [source + "\n"]
    linecache.cache[name] = (len(source), None, lines, name)
    if count > _REMEMBERED_SOURCES:
        linecache.cache.pop("<cell %d>" % (count - _REMEMBERED_SOURCES), None)
    return name


def describe(error: BaseException) -> Tuple[Dict[str, str], bool]:
    """Name, value and traceback, and whether one had to be cut."""
    value, story = text_of(error), _story(error)
    cut = max(len(value), len(story)) > TEXT_LIMIT
    return {"name": type(error).__name__, "value": value[:TEXT_LIMIT], "traceback": story[-TEXT_LIMIT:]}, cut


def text_of(error: BaseException) -> str:
    try:
        if isinstance(error, SystemExit):
            return "0" if error.code is None else str(error.code)
        return str(error)
    except Exception:  # noqa: BLE001  # an exception may be broken too
        return "<its text cannot be shown>"


def _story(error: BaseException) -> str:
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
