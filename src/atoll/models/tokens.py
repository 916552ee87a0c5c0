"""How many tokens a text is, roughly, where no server has counted."""

from __future__ import annotations


def estimate_tokens(text: str) -> int:
    """A rough count, never 0 for text: four characters of ASCII a token, one of anything else.

    Tokenizers of today's models need 3.5 to 4.5 characters of English or code a token, and about one or two of
    Chinese, so this errs towards too many.
    """
    if text.isascii():
        return (len(text) + 3) // 4
    others = sum(1 for character in text if character > "\x7f")
    return (len(text) - others + 3) // 4 + others
