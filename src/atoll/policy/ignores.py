"""What to leave out of a source, in the words of `.gitignore`.

The meaning is git's, to the letter; `gitignore(5)` has it, and where its implementation says more, that counts:
patterns are compared byte by byte, and `x**/` with a slash behind it spans directories, though `x**` does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import InvalidInput
from .globs import DEEP, LONGEST_PATTERN, SPAN, STAR, Element, One, translate
from .text import kind_of, shown

MOST_PATTERNS = 10_000
MOST_REMEMBERED = 10_000

_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r" \t\n\r\f\v", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_NEVER = "(?!)"


class _Line(NamedTuple):
    expression: str
    negated: bool
    directories_only: bool


def check_ignore(value: object) -> tuple[str, ...]:
    """Patterns as `.gitignore` has them, in the same order.

    Raises:
        InvalidInput: it is no list of texts, or one of them cannot be a line of `.gitignore`.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidInput(f"ignore is {shown(value)}; give a list of patterns such as ['node_modules/'].")
    patterns = tuple(value)
    if len(patterns) > MOST_PATTERNS:
        raise InvalidInput(f"There are {len(patterns)} patterns to ignore; at most {MOST_PATTERNS} are taken.")
    for pattern in patterns:
        _check(pattern)
    return patterns


def _check(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise InvalidInput(f"ignore has {shown(pattern)}, {kind_of(pattern)}; patterns are text.")
    if "\n" in pattern or "\0" in pattern:
        raise InvalidInput(f"ignore has {shown(pattern)}; a pattern is one line. Give several as a list.")
    try:
        length = len(_bytes(pattern))
    except UnicodeEncodeError:
        raise InvalidInput(f"ignore has {shown(pattern)} with half a surrogate pair, which is no byte.") from None
    if length > LONGEST_PATTERN:
        raise InvalidInput(f"ignore has {shown(pattern)} with {length} bytes; at most {LONGEST_PATTERN} are allowed.")


class Ignores:
    """The lines of one `.gitignore` at the top of a tree.

    Raises:
        InvalidInput: as `check_ignore`.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        lines = [line for pattern in check_ignore(patterns) if (line := _line(_bytes(pattern))) is not None]
        lines.reverse()  # the last that matches decides
        self._of_directories = _Table(lines)
        self._of_files = _Table([line for line in lines if not line.directories_only])
        self._known = {"": False}

    def ignored(self, path: str, directory: bool) -> bool:
        """Whether `path`, relative and "" for the top, is left out: by itself or because a directory above it is.

        A symbolic link is no directory, wherever it leads.
        """
        if directory:
            return self._left_out(path)
        return self._left_out(path.rpartition("/")[0]) or self._of_files.ignores(path)

    def _left_out(self, directory: str) -> bool:
        unknown = []
        while (found := self._known.get(directory)) is None:
            unknown.append(directory)
            directory = directory.rpartition("/")[0]
        if len(self._known) > MOST_REMEMBERED:
            self._known = {"": False}
        for each in reversed(unknown):
            found = self._known[each] = found or self._of_directories.ignores(each)
        return found


class _Table:
    def __init__(self, lines: list[_Line]) -> None:
        alternatives = "|".join(f"{line.expression}()" for line in lines) or _NEVER
        self._match = re.compile(alternatives, re.DOTALL).match
        self._ignores = [not line.negated for line in lines]

    def ignores(self, path: str) -> bool:
        found = self._match(path if path.isascii() else _bytes(path))
        return found is not None and self._ignores[(found.lastindex or 0) - 1]


def _bytes(text: str) -> str:
    """The bytes of a path or pattern, one character each."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _line(text: str) -> _Line | None:
    """One line, or None for an empty one and for a comment."""
    if text.startswith("#"):
        return None
    text = _trimmed(text.removesuffix("\r"))
    negated = text.startswith("!")
    text = text[negated:]
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    return _Line(_expression(text), negated, directories_only)


def _trimmed(text: str) -> str:
    """Without the spaces at the end, unless a backslash protects them."""
    bare = text.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != text else bare


def _expression(text: str) -> str:
    anywhere = "/" not in text
    text = text.removeprefix("/")
    if not text:
        return _NEVER
    elements: list[Element] = [DEEP] if anywhere else []
    # git compares what comes before the first wildcard by itself, and takes the rest for the whole pattern.
    start = at = len(re.match(r"[^*?\[\\]*", text)[0])  # type: ignore[index]  # it matches every text
    elements += [One(re.escape(character), True) for character in text[:start]]
    while at < len(text):
        element, at = _element(text, at, start)
        if element is None:
            return _NEVER
        elements.append(element)
    return translate(elements, r"\Z")[0]


def _element(text: str, at: int, start: int) -> tuple[Element | None, int]:
    """What stands at `text[at]`, and where the next begins; None for what never matches."""
    character = text[at]
    if character == "*":
        return _stars(text, at, start)
    if character == "?":
        return One("[^/]", False), at + 1
    if character == "[":
        return _set(text, at + 1)
    if character == "\\":
        at += 1
        if at == len(text):
            return None, at
    return One(re.escape(text[at]), True), at + 1


def _stars(text: str, at: int, start: int) -> tuple[Element, int]:
    end = len(text) - len(text[at:].lstrip("*"))
    if end - at == 1 or (at > start and text[at - 1] != "/"):
        return STAR, end
    if text[end : end + 1] == "/":
        return DEEP, end + 1
    return (SPAN if end == len(text) or text.startswith("\\/", end) else STAR), end


def _set(text: str, at: int) -> tuple[Element | None, int]:
    """`[...]`, whose inside begins at `text[at]`."""
    negated = text[at : at + 1] in ("!", "^")
    start = at = at + negated
    parts = ""
    while at == start or text[at : at + 1] != "]":
        if text.startswith("[:", at) and (end := _class_end(text, at)):
            name = text[at + 2 : end - 2]
            if name not in _CLASSES:
                return None, at
            parts += _CLASSES[name]
            at = end
            continue
        part, at = _range(text, at)
        if not part:
            return None, at
        parts += part
    return One(f"(?!/)[{'^' if negated else ''}{parts}]", False), at + 1


def _class_end(text: str, at: int) -> int:
    """Where a class such as [:digit:] ends, or 0 if it is none."""
    end = text.find("]", at + 2)
    return end + 1 if end > at + 2 and text[end - 1] == ":" else 0


def _range(text: str, at: int) -> tuple[str, int]:
    """A character, or two with a `-` between them; of those that are the wrong way round, the first counts."""
    first, at = _member(text, at)
    found = re.escape(first)
    if first and text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
        last, at = _member(text, at + 1)
        if not last:
            return "", at
        if first <= last:
            found = f"{found}-{re.escape(last)}"
    return found, at


def _member(text: str, at: int) -> tuple[str, int]:
    at += text[at : at + 1] == "\\"
    return text[at : at + 1], at + 1
