"""One request while it runs in a context's process: its time, its output, its end."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any, Callable, Dict, Optional

from ..wire.frames import BULK, DATA, EVENT, STDERR, STDOUT, BadFrame, Frame
from .channel import EVENT_LIMIT, Channel, Operation
from .contextlink import ContextLink
from .endings import death
from .loop import Timer, nothing
from .machine import Machine
from .outlet import Outlet
from .pressing import Pressing

_RETRY = 0.005
_TEXT_LIMIT = 1 << 16
_NAME_LIMIT = 200


class Cell(Operation):
    """A request to a context that somebody has made.

    Args:
        timeout: how long it may take from its beginning.
        wait: how long it may wait for that; for ever, if it is None.
        turns: whether they want to hear that it waits for others, and that it does so no more.

    Attributes:
        cancelled: called when they no longer care.
    """

    def __init__(
        self,
        channel: Channel,
        request: Dict[str, Any],
        timeout: Optional[float],
        limit: Optional[int],
        wait: Optional[float] = None,
        *,
        turns: bool = False,
    ) -> None:
        super().__init__(channel)
        self.request = request
        self.timeout = timeout
        self.wait = wait
        self.turns = turns
        self.queued = False
        self.outlet = Outlet(channel, limit)
        self.wanted = True
        self.link: Optional[ContextLink] = None
        self.resume: Callable[[], None] = nothing
        self.cancelled: Callable[[Cell], None] = _ignore

    def writable(self) -> None:
        self.resume()

    def data(self, stream: int, payload: bytes) -> None:
        if self.link is None:
            self.channel.consumed(len(payload))
        else:
            self.link.feed(payload, lambda: self.channel.consumed(len(payload)))

    def call(self, request: Dict[str, Any]) -> None:
        if self.link is not None:
            self.link.call(json.dumps(request).encode("ascii"))

    def close(self) -> None:
        self.wanted = False
        self.outlet.discard()
        self.cancelled(self)


class CellRun:
    """Runs a cell from its making on.

    Args:
        over: called once, when the cell is over and the client has all of its output.
    """

    def __init__(self, machine: Machine, link: ContextLink, cell: Cell, over: Callable[[], None]) -> None:
        self.cell = cell
        self._machine = machine
        self._link = link
        self._over = over
        self._started = monotonic()
        self._timed_out = False
        self._answer: Optional[Dict[str, Any]] = None
        self._settling = self._settled = False
        self._timer: Optional[Timer] = None
        self._pressing: Optional[Pressing] = None
        cell.resume = self.resume
        cell.link = link
        if cell.timeout is not None:
            self._timer = machine.loop.after(cell.timeout, self._out_of_time)
        link.request(json.dumps(cell.request).encode("ascii"))

    def hear(self, frame: Frame) -> None:
        """Take a frame of the context. Code of the cell may have forged it."""
        if frame.kind == DATA:
            if frame.stream == BULK:
                self.cell.outlet.put_bulk(frame.payload)
            else:
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
        """End it, by force if need be."""
        self.cell.outlet.spill()
        self._link.resume()
        if not self._settling:
            self._stop_timer()
            self._pressing = Pressing(self._machine, self._link)

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
            if self._pressing is not None:
                self._pressing.cease()
            self._link.settle(self._clean_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _clean_up(self) -> None:
        if self._timed_out or not self.cell.wanted:
            spared = self._link.pid if self._link.alive else 0
            since = ticks(max(self._started, self._link.begun_at))
            self._machine.killer.kill_since(self._link.mark, since, spared, self._cleaned_up)
        else:
            self._cleaned_up()

    def _cleaned_up(self) -> None:
        self._settled = True
        self._finish()

    def _finish(self) -> None:
        if self._settled and self.cell.outlet.empty:
            self._settled = False
            self._over()

    def verdict(self, state_lost: bool, count: int) -> Dict[str, Any]:
        """The whole answer for the client."""
        if "do" in self.cell.request:
            return self._plain_verdict()
        said = self._answer if self._answer is not None else {"error": death(self._link, self._machine)}
        if isinstance(said.get("refused"), dict):
            return {"error": said["refused"]}
        answer = said["ok"] if isinstance(said.get("ok"), dict) else said
        counted = answer.get("count")
        exit_code = answer.get("exit_code")
        return {
            "ok": {
                "count": counted if type(counted) is int and counted >= 0 else count,
                "error": _error(answer.get("error")),
                "timed_out": self._timed_out,
                "truncated": answer.get("truncated") is True or self.cell.outlet.truncated,
                "state_lost": state_lost,
                "duration": monotonic() - self._started,
                "exit_code": exit_code if type(exit_code) is int else None,
            }
        }

    def _plain_verdict(self) -> Dict[str, Any]:
        """Of a request that is no cell: what the context says, or why it says nothing."""
        if self._timed_out:
            return {"error": {"code": "timed_out", "message": "The context did not answer in time."}}
        if self._answer is None:
            return {"error": {"code": "busy", "message": death(self._link, self._machine)["value"]}}
        if isinstance(self._answer.get("error"), dict) or isinstance(self._answer.get("ok"), dict):
            return self._answer
        return {"error": {"code": "internal", "message": "The context gave no answer that makes sense."}}


def ticks(moment: float) -> int:
    """A moment of the monotonic clock as the process table counts it."""
    import time

    from .proc import TICKS

    return int((time.clock_gettime(time.CLOCK_BOOTTIME) - (monotonic() - moment)) * TICKS)


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


def _ignore(_cell: Cell) -> None:
    pass
