"""Names of files, written so that nobody mistakes them."""

from __future__ import annotations

import os

_SHORT = {
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}


def quoted(path: str) -> str:
    """A name as git writes it: as it is, or in quotes where it has signs that a terminal or a reader would mistake."""
    if path.isprintable() and '"' not in path and "\\" not in path:
        return path
    return '"' + "".join(_escaped(sign) for sign in path) + '"'


def _escaped(sign: str) -> str:
    if sign in _SHORT:
        return _SHORT[sign]
    if sign.isprintable():
        return sign
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))
