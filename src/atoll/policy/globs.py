"""Patterns of path rules, as text and as regular expressions that take no more than quadratic time.

A pattern is names between slashes. In a glob `*` stands for any characters of one name, `?` for one of them, `[a-z]`
and `[!a-z]` for one of a set, `**` for any number of whole names, also for none, and beside other characters (`a**z`)
for any characters with any slashes between. A backslash takes the meaning from the next character. Where `*` or `**`
can match in several ways, it is enough to try the shortest: what follows finds no more room behind a longer one. So
each part between two of them is an atomic group, found once from the left and never looked for again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import InvalidInput
from .text import kind_of, shown

LONGEST_PATTERN = 4096

ANY = "[^/]*"
STAR, SPAN = "*", "**"  # beside other characters of a name
NAME, DEEP = "/*/", "/**/"  # instead of a name
_ESCAPABLE = frozenset("*?[]{}!\\ #-^")
_BRACES = re.compile(r"(?<!\\)\{[^/{}]*,[^/{}]*\}")


class One(NamedTuple):
    """One character of a name, as a regular expression."""

    expression: str
    literal: bool


Element = One | str


class Glob(NamedTuple):
    """A pattern that was understood.

    Attributes:
        expression: matches at the beginning of a path, or does not. It has no group that captures.
        probe: for a pattern that may begin at any name of a path: what has to match at one of them. Else "".
        wildcards: how many there are, not counting a leading `**/`.
        literal: how many characters of names stand for themselves.
    """

    expression: str
    probe: str
    wildcards: int
    literal: int


def check_pattern(pattern: object, kind: str) -> str:
    """`pattern`, if it can be one at all.

    Raises:
        InvalidInput: it is empty, too long, climbs with "..", or holds what no path can.
    """
    if not isinstance(pattern, str):
        raise InvalidInput(f"The pattern {shown(pattern)} is {kind_of(pattern)}; patterns are text.")
    if not pattern:
        raise InvalidInput("A pattern is empty; write '**' for everything.")
    if "\0" in pattern:
        raise InvalidInput(f"The pattern {shown(pattern)} holds a NUL byte, which no path can.")
    try:
        length = len(pattern.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise InvalidInput(f"The pattern {shown(pattern)} holds half a surrogate pair: it is no byte.") from None
    if length > LONGEST_PATTERN:
        raise InvalidInput(f"The pattern {shown(pattern)} has {length} bytes; at most {LONGEST_PATTERN} are allowed.")
    if ".." in pattern.split("/"):
        raise InvalidInput(f"The pattern {shown(pattern)} climbs with '..'; write it from the workspace's root.")
    if kind == "file" and pattern.endswith("/"):
        raise InvalidInput(f"The pattern {shown(pattern)} of kind 'file' ends in a slash; use kind 'directory'.")
    return pattern


def parse_path(pattern: str, *, below: bool) -> Glob:
    """A pattern in which every character stands for itself, from the workspace's root. Nothing is refused."""
    names = _names(pattern)
    end = _end(below) if names else ("" if below else r"\Z")
    return Glob(re.escape("/".join(names)) + end, "", 0, sum(map(len, names)))


def parse_glob(pattern: str, *, hides: bool) -> Glob:
    """A pattern with wildcards.

    Raises:
        InvalidInput: it means something elsewhere that it would not mean here, or nothing at all.
    """
    if pattern.startswith("!"):
        raise InvalidInput(f"The pattern {shown(pattern)} begins with '!'; a rule says what holds by its level. "
                           "Write '\\!' for a name that begins so.")  # fmt: skip
    if _BRACES.search(pattern):
        raise InvalidInput(f"The pattern {shown(pattern)} has alternatives in braces; write a rule for each of them.")
    segments = [_segment(name, pattern) for name in _names(pattern)]
    segments = [each for at, each in enumerate(segments) if each != [DEEP] or segments[at - 1 : at] != [each]]
    everything = pattern == "*"
    below = hides or pattern.endswith("/") or segments[-1:] != [[NAME]] or everything
    wildcards, literal = _specificity(segments)
    wildcards -= len(segments) > 1 and segments[0] == [DEEP]
    if everything:
        segments = []
    while segments and segments[-1] == [DEEP]:
        segments.pop()
    if not segments:
        return Glob("", "", wildcards, literal)
    if "/" not in pattern.rstrip("/"):
        segments.insert(0, [DEEP])
    return Glob(*translate(_flat(segments), _end(below)), wildcards, literal)


def _end(below: bool) -> str:
    return r"(?:/|\Z)" if below else r"\Z"


def _names(pattern: str) -> list[str]:
    return [name for name in pattern.split("/") if name not in ("", ".")]


def _specificity(segments: list[list[Element]]) -> tuple[int, int]:
    literal = sum(isinstance(each, One) and each.literal for segment in segments for each in segment)
    return sum(map(len, segments)) - literal, literal


def _segment(name: str, pattern: str) -> list[Element]:
    if name == "*":
        return [NAME]
    if name.strip("*") == "":
        return [DEEP]
    found: list[Element] = []
    at = 0
    while at < len(name):
        element, at = _element(name, at, pattern)
        found.append(element)
    return found


def _element(name: str, at: int, pattern: str) -> tuple[Element, int]:
    character = name[at]
    if character == "*":
        stars = len(name) - at - len(name[at:].lstrip("*"))
        return (STAR if stars == 1 else SPAN), at + stars
    if character == "?":
        return One("[^/]", False), at + 1
    if character == "[":
        return _set(name, at, pattern)
    if character == "\\":
        return One(re.escape(_escaped(name, at, pattern)), True), at + 2
    return One(re.escape(character), True), at + 1


def _escaped(name: str, at: int, pattern: str) -> str:
    following = name[at + 1 : at + 2]
    if following not in _ESCAPABLE:
        raise InvalidInput(f"The pattern {shown(pattern)} has a backslash before {following or '/'!r}; it belongs "
                           "before one of * ? [ ] { } ! and itself. Names are separated by '/'.")  # fmt: skip
    return following


def _set(name: str, at: int, pattern: str) -> tuple[One, int]:
    """`[...]` at `name[at]`, and where it ends."""
    start = at + 1
    negated = name[start : start + 1] in ("!", "^")
    start = at = start + negated
    if name.startswith("[:", start):
        raise InvalidInput(f"The pattern {shown(pattern)} has a class such as [:digit:]; write a range such as [0-9].")
    ranges = []
    while at == start or name[at : at + 1] != "]":
        first, at = _member(name, at, pattern)
        last = first
        if name[at : at + 1] == "-" and name[at + 1 : at + 2] not in ("", "]"):
            last, at = _member(name, at + 1, pattern)
        if last < first:
            raise InvalidInput(f"The pattern {shown(pattern)} has a range from {first!r} to {last!r}; turn it round.")
        ranges.append(f"{re.escape(first)}-{re.escape(last)}")
    return One(f"(?!/)[{'^' if negated else ''}{''.join(ranges)}]", False), at + 1


def _member(name: str, at: int, pattern: str) -> tuple[str, int]:
    if at >= len(name):
        raise InvalidInput(f"The pattern {shown(pattern)} has a '[' that no ']' closes; write '\\[' for the character.")
    if name[at] == "\\":
        return _escaped(name, at, pattern), at + 2
    return name[at], at + 1


def _flat(segments: list[list[Element]]) -> list[Element]:
    """All elements in a row: slashes are characters now, and DEEP has swallowed the slashes around it."""
    flat: list[Element] = []
    for segment in segments:
        if flat and flat[-1] != DEEP:
            flat.append(One("/", True))
        if segment != [DEEP] or flat[-1:] != [DEEP]:
            flat += segment
    return flat


_GAPS = {DEEP: "(?:.*?/)??", SPAN: ".*?", "": ""}
_LAST_GAPS = {DEEP: "(?:.*/)?", SPAN: ".*", "": ""}


def translate(elements: list[Element], end: str) -> tuple[str, str]:
    """The expression and the probe of a pattern that is these elements in a row, slashes among them, then `end`."""
    blocks: list[tuple[str, list[str]]] = [("", [""])]
    for element in elements:
        if isinstance(element, One):
            blocks[-1][1][-1] += element.expression
        elif element == NAME:
            blocks[-1][1][-1] += "[^/]"
            blocks[-1][1].append("")
        elif element == STAR:
            blocks[-1][1].append("")
        else:
            blocks.append((element, [""]))
    if blocks[0] == ("", [""]):
        del blocks[0]
    *early, (gap, pieces) = blocks
    # Behind the last gap nothing is left to find, so it may be tried from the right, which is quicker.
    last = _last(pieces, end)
    found = "".join(f"(?>{_GAPS[before]}{_shortest(block)})" for before, block in early) + _LAST_GAPS[gap] + last
    if blocks[0][0] != DEEP:
        return found, ""
    return found, _shortest(early[0][1]) if early else last


def _shortest(pieces: list[str]) -> str:
    return pieces[0] + "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:])


def _last(pieces: list[str], end: str) -> str:
    *before, last = pieces
    if not before:
        return last + end
    if not last and end != r"\Z":
        return _shortest(before)
    return _shortest(before) + ANY + last + end
