"""Glob patterns as regular expressions."""

from __future__ import annotations

import re
from typing import Pattern

from .refusal import invalid


def compile_glob(glob: str, *, ignore_case: bool) -> Pattern[str]:
    """`*` and `?` stay within a name, `**` crosses directories, `[abc]` is one character of a set.

    A pattern without a slash fits a name at any depth.

    Raises:
        Refused: it is no pattern.
    """
    pattern = glob.lstrip("/") if "/" in glob.rstrip("/") else "**/" + glob
    try:
        return re.compile(_translated(pattern) + r"\Z", re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    except re.error as error:
        raise invalid("%r is no glob: %s." % (glob[:200], error)) from error


def _translated(pattern: str) -> str:
    """Runs of stars are one star: they mean the same and would take exponential time."""
    out, position = [], 0
    while position < len(pattern):
        for piece, meaning in _PIECES:
            found = piece.match(pattern, position)
            if found:
                out.append(meaning(found.group()))
                position = found.end()
                break
    return "".join(out)


def _character_set(text: str) -> str:
    body = text[1:-1]
    inverted = body[0] in "!^"
    escaped = body[1 if inverted else 0 :].replace("\\", r"\\").replace("[", r"\[").replace("&&", r"\&&")
    return "(?!/)[%s%s]" % ("^" if inverted else "", escaped.replace("]", r"\]"))


_PIECES = (
    (re.compile(r"(?:\*\*+/)+"), lambda _text: "(?:[^/]+/)*"),
    (re.compile(r"\*\*+\Z"), lambda _text: ".*"),
    (re.compile(r"\*+"), lambda _text: "[^/]*"),
    (re.compile(r"\?"), lambda _text: "[^/]"),
    (re.compile(r"\[[!^]?\]?[^\]]*\]"), _character_set),
    (re.compile(r"."), re.escape),
)
