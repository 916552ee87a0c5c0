"""The arguments of an operation, each checked for its type where it is asked for."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from .refusal import invalid

_LARGEST = 1 << 62


class Arguments:
    """The JSON object of an OPEN or CALL. Every getter raises `Refused` with invalid_input."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self._request = request

    def text(self, name: str, default: Optional[str] = None) -> str:
        value = self._request.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise invalid("%r must be a text." % name)
        return value

    def optional_text(self, name: str) -> Optional[str]:
        return None if self._request.get(name) is None else self.text(name)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._request.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid("%r must be true or false." % name)
        return value

    def count(self, name: str, default: Optional[int] = None) -> Optional[int]:
        """A whole number that is not negative."""
        value = self._request.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise invalid("%r must be a whole number that is not negative." % name)
        return value

    def required_count(self, name: str) -> int:
        value = self.count(name)
        if value is None:
            raise invalid("%r is missing." % name)
        return value

    def seconds(self, name: str) -> Optional[float]:
        value = self._request.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise invalid("%r must be a number of seconds." % name)
        return float(value)

    def texts(self, name: str) -> Optional[List[str]]:
        value = self._request.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid("%r must be a list of texts." % name)
        return value

    def mapping(self, name: str) -> Dict[str, str]:
        value = self._request.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise invalid("%r must map texts to texts." % name)
        return value

    def object(self, name: str) -> Dict[str, Any]:
        value = self._request.get(name)
        if not isinstance(value, dict):
            raise invalid("%r must be an object." % name)
        return value

    def window_size(self, name: str) -> Optional[Tuple[int, int]]:
        """Rows and columns of a terminal."""
        value = self._request.get(name)
        if value is None:
            return None
        if not (isinstance(value, list) and len(value) == 2 and all(_is_screen_length(item) for item in value)):
            raise invalid("%r must be [rows, columns]." % name)
        return value[0], value[1]

    def file_mode(self, name: str) -> Optional[int]:
        value = self.count(name)
        if value is not None and value > 0o7777:
            raise invalid("%r must be the permission bits of a file, at most 0o7777." % name)
        return value


def _is_screen_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 16


def encoded(text: str, what: str) -> bytes:
    """As the kernel takes it, with lone surrogates turned back into the bytes that they stand for.

    Raises:
        Refused: a NUL, or a surrogate that stands for no byte.
    """
    if "\0" in text:
        raise invalid("%s holds a NUL byte." % what)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise invalid("%s holds a surrogate that stands for no byte." % what) from None
