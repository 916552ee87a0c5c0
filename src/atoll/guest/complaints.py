"""Telling what could not be shown: one short line on stderr, whatever state the objects around are in."""

from __future__ import annotations

import sys
from typing import Callable

Complain = Callable[[str], None]

_LIMIT = 300


def to_stderr(complaint: str) -> None:
    """One short line, for who looks there."""
    line = " ".join(complaint.split())
    if len(line) > _LIMIT:
        line = line[:_LIMIT] + "…"
    try:
        sys.stderr.write(line + "\n")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001, S110  # the cell has closed or replaced it: nobody listens
        pass


def named(error: BaseException) -> str:
    return "%s: %s" % (name_of(type(error)), words_of(error))


def name_of(kind: type) -> str:
    """The type's name, whatever its metaclass thinks."""
    name: str = type.__dict__["__name__"].__get__(kind)
    return name


def words_of(error: BaseException) -> str:
    """The text of an exception, which may be broken too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # it was said that it may be broken
        return "<its text cannot be shown>"
