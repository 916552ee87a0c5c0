"""What an agent does, on the user's terminal, while it does it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .output import STDERR, colourful, paint, visible, write

if TYPE_CHECKING:
    from ..agent.events import Event

_CLEAR = "\r\x1b[K"
_REFRESH = 0.25
_WORTH = ("code", "command", "path", "prompt", "content", "name")


class Progress:
    """Listens to a run: a line for each step, and on a terminal one below that says what goes on now.

    `seconds` is what a call in the sandbox may take, of which the last line tells what is left.
    """

    seconds = 30.0

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = not quiet and os.isatty(STDERR)
        self._colours = colourful(STDERR)
        self._lock = threading.Lock()
        self._began: dict[tuple[str, str], float] = {}
        self._now: tuple[float, Event] | None = None
        self._over = threading.Event()
        if self._live:
            threading.Thread(target=self._refresh, name="atoll-progress", daemon=True).start()

    def __call__(self, event: Event) -> None:
        if self._quiet:
            return
        with self._lock:
            if event.kind == "began":
                self._began[event.run, event.key] = time.monotonic()
                self._now = (time.monotonic(), event)
                self._status()
            elif event.kind == "ended":
                self._line(self._ended(event))
            elif event.kind == "retry":
                self._line(f"{_indent(event)}  asking again: {visible(event.text)}")
            elif event.kind == "replayed" and event.depth == 0:
                self._line(f"going on after {event.number} step{'s' * (event.number != 1)}")

    def close(self) -> None:
        self._over.set()
        with self._lock:
            if self._live:
                write(STDERR, _CLEAR.encode())
            self._live = False

    def _ended(self, event: Event) -> str:
        took = time.monotonic() - self._began.pop((event.run, event.key), time.monotonic())
        failed = bool(event.outcome.get("failed")) or event.outcome.get("passed") is False
        mark = paint("✗" if failed else "✓", "red" if failed else "green", wanted=self._colours)
        what = visible({"model": "model", "check": "check"}.get(event.step, event.name))[:40]
        return f"{_indent(event)}{event.number:>3} {mark} {what:<13} {_gist(event):<60} {_seconds(took):>7}"

    def _line(self, text: str) -> None:
        clear = _CLEAR if self._live else ""
        write(STDERR, f"{clear}{text.rstrip()}\n".encode("utf-8", "backslashreplace"))

    def _refresh(self) -> None:
        while not self._over.wait(_REFRESH):
            with self._lock:
                self._status()

    def _status(self) -> None:
        if self._now is None or not self._live:
            return
        began, event = self._now
        took = time.monotonic() - began
        parts = [
            f"step {event.number}",
            event.name,
            f"{event.spent.tokens:,} tokens",
            money(event.spent.cost),
            _seconds(took),
        ]
        if event.step == "tool":
            parts.append(f"{max(self.seconds - took, 0):.0f} s left")
        line = " · ".join(parts)[: _width() - 1]
        write(
            STDERR, f"{_CLEAR}{paint(visible(line), 'faint', wanted=self._colours)}".encode("utf-8", "backslashreplace")
        )


def money(cost: float | None) -> str:
    """Dollars, for people."""
    return "cost unknown" if cost is None else f"${cost:.4f}"


def _indent(event: Event) -> str:
    return "    " * event.depth + ("  └ " if event.parent else "")


def _gist(event: Event) -> str:
    """What a step was about, in a few words."""
    text = _wanted(event.outcome.get("reply")) if event.step == "model" else _asked(event.request)
    if event.step == "check":
        text = "passed" if event.outcome.get("passed") else str(event.outcome.get("text"))
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith("[")), lines[0] if lines else "")
    return visible(first.strip())[:60]


def _wanted(reply: Mapping[str, Any] | None) -> str:
    if not reply:
        return ""
    calls = [call["name"] for call in reply.get("tool_calls", ())]
    return f"→ {', '.join(calls)}" if calls else str(reply.get("text") or "")


def _asked(request: Mapping[str, Any]) -> str:
    arguments = request.get("arguments", request)
    if not isinstance(arguments, Mapping):
        return str(arguments)
    return next((str(arguments[name]) for name in _WORTH if name in arguments), "")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


def _width() -> int:
    try:
        return os.get_terminal_size(STDERR).columns or 80
    except OSError:
        return 80
