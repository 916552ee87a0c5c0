"""What a tool has at hand while it works on one call, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .ownground import Ground
    from .pinned import Pin
    from .sessions import Sessions
    from .settings import Settings

_LINES = 1000
_PAUSE = 0.1
_LONGEST = 500


class Outcome(NamedTuple):
    """What a tool gives: blocks of content for the model, and the same as data. `failed` is MCP's isError."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    failed: bool = False


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def said(text: str, structured: dict[str, Any] | None = None) -> Outcome:
    return Outcome([text_block(text)], structured)


def refused(text: str) -> Outcome:
    return Outcome([text_block(text)], failed=True)


def shortened(text: str, room: int) -> tuple[str, bool]:
    """At most so many characters of it: the beginning and, a quarter of it, the end; and whether that is not all."""
    if len(text) <= room:
        return text, False
    tail = room // 4
    left_out = len(text) - room
    return f"{text[: room - tail]}\n… {left_out} characters left out …\n{text[len(text) - tail :]}", True


class Desk(NamedTuple):
    """`progress` is called with each line of output, where the client asked for that; else it is None."""

    sessions: Sessions
    settings: Settings
    pin: Pin
    ground: Ground
    progress: Callable[[str], None] | None = None


class Progress:
    """Lines of output as notifications: each of the first thousand, then at most ten a second.

    The whole output is in the answer in any case; a program that prints for ever must not bury the client.
    """

    def __init__(self, send: Callable[[int, str], None]) -> None:
        self._send = send
        self._count = 0
        self._last = 0.0

    def __call__(self, line: str) -> None:
        self._count += 1
        if self._count > _LINES:
            now = monotonic()
            if now - self._last < _PAUSE:
                return
            self._last = now
        self._send(self._count, line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")
