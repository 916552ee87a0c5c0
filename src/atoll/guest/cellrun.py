"""One cell while it runs in a context's process: its time, its output, its end."""

from __future__ import annotations

import json
import os
import signal
import time
from time import monotonic
from typing import Any, Callable, Dict, Optional

from ..wire.frames import DATA, EVENT, STDERR, STDOUT, BadFrame, Frame
from .channel import EVENT_LIMIT, Channel, Operation
from .contextlink import ContextLink
from .loop import Timer
from .machine import Machine
from .outlet import Outlet
from .proc import TICKS

GRACE = 1.0
"""Between SIGINT and SIGKILL."""

_RETRY = 0.005
_TEXT_LIMIT = 1 << 16
_NAME_LIMIT = 200


class Cell(Operation):
    """A cell that somebody has asked for. `cancelled` is called when they no longer care."""

    def __init__(
        self, channel: Channel, request: Dict[str, Any], timeout: Optional[float], limit: Optional[int]
    ) -> None:
        super().__init__(channel)
        self.request = request
        self.timeout = timeout
        self.outlet = Outlet(channel, limit)
        self.wanted = True
        self.resume: Callable[[], None] = _nothing
        self.cancelled: Callable[[Cell], None] = _ignore

    def writable(self) -> None:
        self.resume()

    def close(self) -> None:
        self.wanted = False
        self.outlet.discard()
        self.cancelled(self)


class CellRun:
    """Runs a cell from its making on.

    Args:
        count: its number in its context.
        over: called once, when the cell is over and the client has all of its output.
    """

    def __init__(self, machine: Machine, link: ContextLink, cell: Cell, count: int, over: Callable[[], None]) -> None:
        self.cell = cell
        self._machine = machine
        self._link = link
        self._count = count
        self._over = over
        self._started = monotonic()
        self._started_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)
        self._timed_out = False
        self._answer: Optional[Dict[str, Any]] = None
        self._settling = self._settled = False
        self._timer: Optional[Timer] = None
        cell.resume = self.resume
        if cell.timeout is not None:
            self._timer = machine.loop.after(cell.timeout, self._out_of_time)
        link.request(json.dumps(cell.request).encode("ascii"))

    def hear(self, frame: Frame) -> None:
        """Take a frame of the context. Code of the cell may have forged it."""
        if frame.kind == DATA:
            self.cell.outlet.put(STDERR if frame.stream == STDERR else STDOUT, frame.payload)
        elif self._answer is not None:
            return
        elif frame.kind == EVENT:
            if len(frame.payload) <= EVENT_LIMIT:
                self.cell.outlet.put_event(frame.payload)
        else:
            self._answer = _parsed(frame)
            self._settle()

    def interrupt(self) -> bool:
        """Whether there was something to interrupt."""
        if self._settling:
            return False
        if not self._link.interrupt():
            self._machine.loop.after(_RETRY, self.interrupt)
        return True

    def stop(self) -> None:
        """SIGINT, as soon as the cell runs; once more for one that caught it; then SIGKILL."""
        self.cell.outlet.spill()
        self._link.resume()
        if not self._settling:
            self._stop_timer()
            self._press(GRACE)

    def _press(self, left: float) -> None:
        if left <= 0:
            self._link.kill()
            return
        pause = GRACE / 2 if self._link.interrupt() else _RETRY
        self._timer = self._machine.loop.after(pause, lambda: self._press(left - pause))

    def _out_of_time(self) -> None:
        self._timed_out = True
        self.stop()

    def exited(self) -> None:
        """The process is gone."""
        self._settle()

    def resume(self) -> None:
        """There may be room again."""
        self.cell.outlet.pump()
        self._link.resume()
        self._finish()

    def _settle(self) -> None:
        """The cell is over; take what its processes have written, and stop them if it was stopped."""
        if not self._settling:
            self._settling = True
            self._stop_timer()
            self._link.settle(self._clean_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _clean_up(self) -> None:
        if self._timed_out or not self.cell.wanted:
            spared = self._link.pid if self._link.alive else 0
            self._machine.killer.kill_since(self._link.mark, self._started_ticks, spared, self._cleaned_up)
        else:
            self._cleaned_up()

    def _cleaned_up(self) -> None:
        self._settled = True
        self._finish()

    def _finish(self) -> None:
        if self._settled and self.cell.outlet.empty:
            self._settled = False
            self._over()

    def verdict(self, state_lost: bool) -> Dict[str, Any]:
        answer = self._answer if self._answer is not None else {"error": _death(self._link.status)}
        return {
            "count": self._count,
            "error": _error(answer.get("error")),
            "timed_out": self._timed_out,
            "truncated": answer.get("truncated") is True or self.cell.outlet.truncated,
            "state_lost": state_lost,
            "duration": monotonic() - self._started,
        }


def _parsed(frame: Frame) -> Dict[str, Any]:
    try:
        return frame.json()
    except BadFrame as error:
        return {"error": {"name": "ContextBroken", "value": str(error), "traceback": ""}}


def _error(said: Any) -> Optional[Dict[str, str]]:
    """What a context says went wrong, in the shape and the size that an END has room for."""
    if not isinstance(said, dict):
        return None
    return {
        "name": str(said.get("name"))[:_NAME_LIMIT],
        "value": str(said.get("value"))[:_TEXT_LIMIT],
        "traceback": str(said.get("traceback"))[:_TEXT_LIMIT],
    }


def _death(status: int) -> Dict[str, str]:
    if os.WIFSIGNALED(status):
        reason = "signal %d (%s) ended the Python process" % (os.WTERMSIG(status), _name(os.WTERMSIG(status)))
    else:
        reason = "the Python process exited with %d" % os.WEXITSTATUS(status)
    value = "%s; the variables of this context are lost" % reason
    return {"name": "ContextDied", "value": value, "traceback": "ContextDied: %s\n" % value}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real time"


def _nothing() -> None:
    pass


def _ignore(_cell: Cell) -> None:
    pass
