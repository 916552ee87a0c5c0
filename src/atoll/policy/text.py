"""Values in error messages."""

from __future__ import annotations

LONGEST = 80
_LONGEST_PATH = 200


def shown(value: object) -> str:
    """`repr(value)`, cut to a length that fits a sentence; a value that has no repr is named by its type."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, a list inside itself
        return f"an unprintable {type(value).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def short(path: str) -> str:
    """A path, cut to a length that fits a sentence."""
    return path if len(path) <= _LONGEST_PATH else path[: _LONGEST_PATH - 1] + "…"
