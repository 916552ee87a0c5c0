"""Sizes in bytes, as people write them: 512M, 1.5G, 4096. Units are powers of 1024."""

from __future__ import annotations

import re

from ..errors import InvalidInput
from .text import shown

MAX_SIZE = (1 << 63) - 1

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
# The digits are bounded, so that nobody makes Python multiply a number of a million digits.
# Compiled on first use: most sandboxes are made without such a text.
_SIZE = r"([0-9]{1,19})(?:\.([0-9]{1,19}))? ?(?:([KMGTP])i?)?B?"


def parse_size(value: int | str, what: str = "size") -> int:
    """The number of bytes that `value` means; a fraction of a byte is dropped.

    Raises:
        InvalidInput: it is no size, not above 0, or more than a file can ever hold.
    """
    size = _parse_text(value, what) if isinstance(value, str) else value
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidInput(f"{what} is {shown(value)}; give bytes as a whole number, or text such as '512M' or '1G'.")
    if not 0 < size <= MAX_SIZE:
        raise InvalidInput(f"{what} is {shown(value)}; a size lies above 0 and below 8192P.")
    return size


def _parse_text(text: str, what: str) -> int:
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise InvalidInput(f"{what} is {shown(text)}, which is no size; write it like '512M', '1.5G' or '4096'.")
    whole, fraction, unit = match.groups()
    factor = _UNITS[(unit or "").upper()]
    return int(whole) * factor + (int(fraction) * factor // 10 ** len(fraction) if fraction else 0)


def format_size(size: int) -> str:
    """The shortest exact text: `parse_size(format_size(n)) == n`."""
    for unit in ("P", "T", "G", "M", "K"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
