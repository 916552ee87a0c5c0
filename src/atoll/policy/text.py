"""Values in error messages."""

from __future__ import annotations

LONGEST = 80
_LONGEST_LINE = 200


def shown(value: object) -> str:
    """`repr(value)`, cut to a length that fits a sentence; a value that has no repr is named by its type."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, a list inside itself
        return f"an unprintable {type(value).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def short(text: str) -> str:
    """A path or a command, cut to a length that fits a sentence, on one line."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def article(noun: str) -> str:
    """The noun with "a" or "an" in front, as its first letter sounds."""
    return f"{'an' if noun[:1] in 'aeiouAEIOU' else 'a'} {noun}"


def kind_of(value: object) -> str:
    """What a value is, for a sentence such as "env is an int"."""
    return "None" if value is None else article(type(value).__name__)
