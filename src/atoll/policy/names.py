"""Names that people give to things that atoll keeps."""

from __future__ import annotations

import re

from ..errors import InvalidInput
from .text import shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def check_name(name: object, what: str) -> str:
    """A name that is a file's name everywhere.

    Raises:
        InvalidInput: it is none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} is {shown(name)}; give 1 to 100 letters, digits, '.', '_', '+' or '-', beginning with a letter "
            "or a digit."
        )
    return name
