"""Lines that a user types, with history and completion, or that a pipe brings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .output import complain

_LINES = 5000
_PIECE = 1 << 16
_INDENT = "    "


class Keyboard:
    """Reads from the terminal.

    Args:
        history: the file that keeps what was typed, for the next time. Where it cannot be written nothing is kept.
        names: gives what Tab completes.
    """

    def __init__(self, history: str, names: Callable[[], Iterable[str]]) -> None:
        self._history = history
        self._names = names
        self._found: list[str] = []
        self._readline = self._set_up()

    def _set_up(self) -> Any:
        try:
            import readline
        except ImportError:
            return None  # a Python without it: lines can be typed, and that is all
        readline.set_auto_history(False)
        readline.set_history_length(_LINES)
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n`~!@#$%^&*()-=+[{]}\\|;:'\",<>/?.")
        readline.parse_and_bind("tab: complete")
        try:
            # A file of this user alone: what is typed may hold secrets.
            os.close(os.open(self._history, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            readline.read_history_file(self._history)
        except OSError as error:
            complain(f"The history {self._history} cannot be used: {error.strerror}.")
            self._history = ""
        return readline

    def read(self, prompt: str) -> str | None:
        """A line, which may be several if they were pasted; None at Ctrl-D. Raises KeyboardInterrupt at Ctrl-C."""
        try:
            return input(prompt)
        except EOFError:
            return None
        except UnicodeDecodeError:
            complain("That was not UTF-8 text.")
            return ""
        except SystemError as error:
            # Of two signals at once, input() calls the second handler on top of what the first has raised.
            raise error.__cause__ or error from None

    def remember(self, text: str) -> None:
        """Let the arrow keys find these lines again."""
        lines = [line for line in text.split("\n") if line.strip()]
        if self._readline is None or not lines:
            return
        for line in lines:
            self._readline.add_history(line)
        if self._history:
            try:
                self._readline.append_history_file(len(lines), self._history)
            except OSError as error:
                complain(f"The history {self._history} cannot be written: {error.strerror}.")
                self._history = ""

    def _complete(self, text: str, state: int) -> str | None:
        if not text:
            if state == 0:
                self._readline.insert_text(_INDENT)
                self._readline.redisplay()
            return None
        if state == 0:
            self._found = sorted({name for name in self._names() if name.startswith(text)})
        return self._found[state] if state < len(self._found) else None


class Pipe:
    """Reads lines of standard input, one at a time, so that cells and what they ask for can share it."""

    def __init__(self) -> None:
        self._left = bytearray()
        self._ended = False

    def read(self) -> str | None:
        """A line without its end, or None when there are no more."""
        while b"\n" not in self._left and not self._ended:
            piece = os.read(0, _PIECE)
            self._ended = not piece
            self._left += piece
        if not self._left:
            return None
        line, _, rest = self._left.partition(b"\n")
        self._left = rest
        return line.decode("utf-8", "replace").removesuffix("\r")

    def __iter__(self) -> Iterator[str]:
        while (line := self.read()) is not None:
            yield line
