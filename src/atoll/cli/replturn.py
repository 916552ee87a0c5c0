"""One cell of `atoll repl`: run, shown, and interrupted by Ctrl-C without losing what was there."""

from __future__ import annotations

import _thread
import os
import signal
from collections.abc import Callable
from typing import Any

from ..errors import AtollError
from ..sync.sandbox import Sandbox
from ..types import Execution
from .output import STDERR, complain, write
from .showing import Showing

_RESTARTS = 3


class Turns:
    """Runs cells in one context.

    Args:
        ask: gives a line for an `input()` inside, or None at the end; it may raise KeyboardInterrupt. It is called
            with what the cell has said of the line so far, prompt and all.
    """

    def __init__(self, sandbox: Sandbox, context: str, timeout: Any, ask: Callable[[str], str | None]) -> None:
        self._sandbox = sandbox
        self._context = context
        self._timeout = timeout
        self._ask = ask
        self._presses = 0

    def run(self, code: str, show: Showing) -> Execution:
        """Raises AtollError. While it runs Ctrl-C goes to the cell; a third one restarts the context."""
        self._presses = 0

        def answer(_prompt: str) -> str | None:
            return self._answer(show)

        before = signal.signal(signal.SIGINT, self._on_press)
        try:
            return self._sandbox.run_code(
                code, context=self._context, timeout=self._timeout, on_stdout=show.on_stdout,
                on_stderr=show.on_stderr, on_result=show.on_result, on_error=show.on_error, on_input=answer,
            )  # fmt: skip
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_press(self, number: int, frame: object) -> None:
        self._presses += 1
        if os.isatty(STDERR):
            write(STDERR, b"\n")  # the terminal has echoed ^C
        if self._presses == _RESTARTS - 1:
            complain("The cell does not listen; Ctrl-C once more restarts it, and the variables are lost.")
        # A thread: this handler may have struck in the middle of a message to the sandbox.
        _thread.start_new_thread(self._interrupt, (self._presses >= _RESTARTS,))

    def _interrupt(self, restart: bool) -> None:
        try:
            if restart:
                self._sandbox.contexts.restart(self._context)
            else:
                self._sandbox.contexts.interrupt(self._context)
        except AtollError:
            return  # the thread that waits for the cell meets the same, and tells it

    def _answer(self, show: Showing) -> str | None:
        during = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self._ask(show.take_line())
        except KeyboardInterrupt:
            show.on_stdout("\n")
            self._interrupt(restart=False)
            return None
        finally:
            signal.signal(signal.SIGINT, during)
