"""Answering the requests of a context, whichever way they come: cells, variables, checkpoints."""

from __future__ import annotations

import json
import signal
from typing import Any, Callable, Dict, List

from . import running, stories, variables
from .awakening import Memory, notice
from .interpreter import Interpreter
from .port import HungUp, Port
from .refusal import Refused
from .shared import Shared

Handler = Callable[[Dict[str, Any], Port], Dict[str, Any]]


class Desk:
    """
    Args:
        memory: what the context had before, brought back before the first request is served.
    """

    def __init__(self, interpreter: Interpreter, shared: Shared, memory: Memory) -> None:
        self._interpreter = interpreter
        self._shared = shared
        self._memory = memory
        self._handlers: Dict[str, Handler] = {
            "variables": lambda request, port: variables.handle(interpreter.namespace, request, port),
            "freeze": lambda request, _port: memory.freeze(
                interpreter.namespace, request, interpreter.flags, running.beside_variables(interpreter.events)
            ),
        }

    def wake(self, do: str) -> None:
        """Bring back what there was before, if that is still to be done."""
        if self._memory.asleep:
            self._interpreter.declines = self._wake() and do == "code"

    def answer(self, do: str, request: Dict[str, Any], port: Port) -> bytes:
        if do != "freeze":
            self._memory.touched()
        return self._interpreter.run(request, port) if do == "code" else self._handle(do, request, port)

    def _wake(self) -> bool:
        """Whether it was interrupted. That gives up one variable, so it may come at any time."""
        interrupts: List[int] = []

        def interrupt(number: int, _frame: Any) -> None:
            interrupts.append(number)
            if self._shared.running:
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        try:
            self._shared.running = True
            try:
                report = self._memory.wake(self._interpreter.namespace)
                self._interpreter.flags |= report.flags
                self._interpreter.notice = notice(report.lost)
            finally:
                self._shared.running = False
        except KeyboardInterrupt:
            self._shared.running = False  # once more: it may have come between the two
            self._interpreter.notice = notice({"some variables": "bringing them back was interrupted"})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return bool(interrupts)

    def _handle(self, do: str, request: Dict[str, Any], port: Port) -> bytes:
        """Anything but a cell; it may run code of the cells' objects, so it can be interrupted and can fail."""
        handler = self._handlers.get(do)
        try:
            if handler is None:
                raise Refused("unsupported", "A context does not know how to do %.50r." % (do,))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._shared.running = True
            try:
                return json.dumps({"ok": handler(request, port)}).encode("ascii")
            finally:
                self._shared.running = False
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except HungUp:
            raise
        except Refused as refusal:
            return json.dumps({"error": refusal.wire()}).encode("ascii")
        except BaseException as error:  # noqa: BLE001  # code of the cells' objects may raise anything
            self._shared.running = False
            message = "%s: %s" % (stories.name_of(error), stories.text_of(error))
            return json.dumps({"error": Refused("invalid_input", message).wire()}).encode("ascii")
