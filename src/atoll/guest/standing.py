"""Having contexts stand still, so that the keeper can fork them into other sandboxes."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from ..wire.frames import WINDOW
from .cellrun import Cell
from .context import Context
from .loop import Loop, Timer
from .refusal import Refused

_MOST_SETTINGS = 1 << 10
# How long a context that may go on can take to do so: until then nothing else runs there, nor does its time.
_LEAVING = 2.0
Report = Dict[str, Any]


class _Quiet:
    """A channel that nobody reads: what a context says while it stands is for the guest."""

    open = True
    room = WINDOW

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.standing = False
        self.failure: Optional[str] = None

    def send_event(self, payload: bytes) -> None:
        self.standing = True
        self._changed()

    def send_data(self, stream: int, payload: bytes) -> None:
        """Output of threads that earlier cells have left; a twin shows its own."""

    def consumed(self, size: int) -> None:
        """There is no input."""

    def answer(self, answer: Dict[str, Any]) -> None:
        self.standing = False
        error = answer.get("error")
        self.failure = str(error.get("message")) if isinstance(error, dict) else "it did not stand still"
        self._changed()

    def fail(self, refusal: Refused) -> None:
        self.answer({"error": refusal.wire()})


class Standing:
    """One hold. `done` is called once, with how each context stands."""

    def __init__(
        self, loop: Loop, contexts: List[Context], wait: float, seconds: float, done: Callable[[List[Report]], None]
    ) -> None:
        self._done: Optional[Callable[[List[Report]], None]] = done
        self._loop = loop
        self._contexts = contexts
        self._cells: Dict[Context, Cell] = {}
        self._channels: Dict[Context, _Quiet] = {}
        self._timer: Optional[Timer] = loop.after(wait, self._tell)
        for context in contexts:
            if context.can_be_forked:
                self._ask(context, seconds)
        self._look()

    def _ask(self, context: Context, seconds: float) -> None:
        channel = self._channels[context] = _Quiet(self._look)
        quiet: Any = channel
        cell = self._cells[context] = Cell(quiet, {"do": "fork", "seconds": seconds}, None, None)
        context.submit(cell)

    def _look(self) -> None:
        if all(each.standing or each.failure is not None for each in self._channels.values()):
            self._tell()

    def _tell(self) -> None:
        if self._done is None or self._timer is None:
            return
        done, self._done = self._done, None
        self._timer.cancel()
        done([self._report(context) for context in self._contexts])

    def _report(self, context: Context) -> Report:
        settings = context.settings
        report: Report = {"name": settings.name, "language": settings.language, "cwd": settings.cwd}
        if len(json.dumps(settings.env)) < _MOST_SETTINGS:
            report["env"] = settings.env
        channel = self._channels.get(context)
        if channel is None:
            return {**report, "state": "used" if context.used else "unused"}
        if channel.standing:
            return {**report, "state": "standing", "number": context.number}
        return {**report, "state": "busy" if channel.failure is None else "failed", "reason": channel.failure}

    def release(self) -> None:
        """Have those forget it that do not stand yet. The others go on when the keeper tells them."""
        self._tell()
        for context, cell in self._cells.items():
            if self._channels[context].standing:
                self._loop.after(_LEAVING, partial(self._insist, context))
            elif self._channels[context].failure is None:
                cell.close()

    def _insist(self, context: Context) -> None:
        if self._channels[context].standing:
            self._cells[context].close()
