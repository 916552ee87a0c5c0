"""Lines into messages. Pure: what is no message of JSON-RPC becomes the error that says so."""

from __future__ import annotations

import json
import re
from typing import Any

from . import revisions

MAX_MESSAGE = 32 << 20
"""Bytes of one message."""

MAX_BATCH = 100
# In Python a whole pair is one character.
_HALF = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """No message. `code` and the text are those of the answer, `id` that of the request, where it has one."""

    def __init__(self, code: int, message: str, id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


def parsed(line: bytes) -> Any:
    """What a line says. Raises Unreadable."""
    try:
        return json.loads(line)
    except RecursionError:
        raise Unreadable(revisions.PARSE_ERROR, "The message is nested too deeply.") from None
    except ValueError:
        raise Unreadable(revisions.PARSE_ERROR, "The message is no JSON.") from None


def checked(message: Any) -> dict[str, Any]:
    """A request, a notification, or an answer. Raises Unreadable for anything else."""
    if not isinstance(message, dict):
        raise Unreadable(revisions.INVALID_REQUEST, "A message is an object.")
    id = message.get("id")
    known = id if is_id(id) else None
    if message.get("jsonrpc") != "2.0":
        raise Unreadable(revisions.INVALID_REQUEST, "jsonrpc is not '2.0'.", known)
    if "id" in message and known is None and "method" in message:
        raise Unreadable(revisions.INVALID_REQUEST, "The id is neither a text nor a whole number.")
    if "method" not in message and ("result" in message or "error" in message):
        return message
    if not isinstance(message.get("method"), str):
        raise Unreadable(revisions.INVALID_REQUEST, "The method is no text.", known)
    return message


def is_id(id: Any) -> bool:
    """Whether it is a whole number, or text that can be sent back: strict parsers refuse half a surrogate pair."""
    if isinstance(id, str):
        return id.isascii() or not _HALF.search(id)
    return isinstance(id, int) and not isinstance(id, bool)
