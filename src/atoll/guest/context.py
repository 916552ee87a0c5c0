"""A context: a process that keeps its state between cells, with a queue of requests."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from ..wire.frames import DATA, QUEUED, STARTED, STDERR, STDOUT, Frame
from . import languages
from .cellrun import Cell, CellRun
from .contextlink import ContextLink, Listener
from .contextstart import ContextSettings
from .machine import Machine
from .outlet import Outlet
from .refusal import BUSY, CANCELLED, UNSUPPORTED, Refused


class Context:
    """One context. Its process is made for the first request, and again after it has died."""

    def __init__(self, machine: Machine, settings: ContextSettings) -> None:
        self.settings = settings
        self._machine = machine
        self._queue: Deque[Cell] = deque()
        self._run: Optional[CellRun] = None
        self._link: Optional[ContextLink] = None
        self._between = Outlet(None)
        self._submitted = self._cells = self._restarts = 0
        self._state_lost = False

    @property
    def busy(self) -> bool:
        return self._run is not None or bool(self._queue)

    @property
    def used(self) -> bool:
        """Whether its process has run anything."""
        return self._link is not None and self._submitted > 0

    @property
    def process(self) -> Tuple[Optional[int], int]:
        """Its pid and its mark; None and 0 while there is none."""
        link = self._link
        return (link.pid, link.mark) if link is not None and link.alive else (None, 0)

    @property
    def costly(self) -> bool:
        """Whether making its process anew would take long."""
        return self._link is not None and self._link.costly

    def describe(self) -> Dict[str, Any]:
        link = self._link
        return {
            "name": self.settings.name,
            "language": self.settings.language,
            "cwd": self._machine.root.absolute(self.settings.cwd),
            "pid": link.pid if link is not None and link.alive else None,
            "busy": self.busy,
            "count": self._cells if link is not None else 0,
        }

    def prepare(self) -> ContextLink:
        """Its process, made ahead of the first request if there is none. Raises Refused."""
        self._machine.reaper.reap()  # it may have died just now, which the next request must not suffer from
        if self._link is None:
            listener = Listener(self._hear, self._output, self._room, self._exited)
            own = self.settings.language == "python" and not self._machine.config.kernel
            if not own and self._machine.become is not None:
                # What was kept names its language, and may have been written by the code inside.
                raise Refused(UNSUPPORTED, "This sandbox has contexts for Python only.")
            make = ContextLink if own else languages.link_for(self.settings.language)
            self._link = make(self._machine, listener, self.settings)
            self._submitted = self._cells = 0
        return self._link

    def dress(self) -> None:
        """The sandbox's environment is another one than when its process was made. One that has run something keeps
        what it has."""
        link = self._link
        if link is None or self.busy or self.used:
            return
        if link.can_be_dressed:
            env = {**self._machine.config.environment(), **self.settings.env}
            link.request(json.dumps({"do": "dress", "env": env}).encode("ascii"))
        else:
            self.discard_unused()

    def discard_unused(self) -> None:
        """End a process that has run nothing, and that nobody wants to use now."""
        if self._link is not None and not self.busy and not self.used:
            self._link.kill()
            self._drop(self._link)

    def restart(self, done: Callable[[], None], reason: str = "the context was restarted") -> None:
        """End its process with all that it has started; the next request makes a new one. Cells that wait fail."""
        waiting, self._queue = list(self._queue), deque()
        for cell in waiting:
            cell.channel.fail(Refused(CANCELLED, "%s before the cell ran." % reason.capitalize()))
        self._forget_frozen()
        link = self._link
        if link is None:
            done()
            return
        if self._run is not None:
            self._run.cell.outlet.spill()
        link.reason = reason
        link.kill()
        self._restarts += 1

        def forget() -> None:
            self._restarts -= 1
            self._machine.reaper.reap()
            if self._link is link and self._run is None:
                self._exited()  # its processes are gone, though the link may hear so later
            self._state_lost = False
            self._between.drop()
            done()
            self._next()

        self._machine.killer.kill_command(link.mark, forget)

    def submit(self, cell: Cell) -> None:
        """Have it run when those before it are over."""
        cell.cancelled = self._cancel
        self._queue.append(cell)
        self._next()
        if cell in self._queue:
            if cell.turns:
                cell.queued = True
                cell.channel.send_event(QUEUED)
            if cell.wait is not None:
                self._machine.loop.after(cell.wait, lambda: self._give_up(cell))

    def _give_up(self, cell: Cell) -> None:
        """It has waited for as long as it may."""
        if cell in self._queue:
            self._queue.remove(cell)
            cell.channel.fail(Refused(BUSY, "A cell was still running in the context %.200r." % self.settings.name))

    def interrupt(self) -> bool:
        """Whether there was something to interrupt."""
        if self._run is not None:
            return self._run.interrupt()
        return self._link is not None and self._link.interrupt()

    def _cancel(self, cell: Cell) -> None:
        """The client has gone: stop the cell as if its time were up, or never start it."""
        if self._run is not None and self._run.cell is cell:
            self._run.stop()
            self._run.resume()
        elif cell in self._queue:
            self._queue.remove(cell)
            cell.channel.fail(Refused(CANCELLED, "The cell was cancelled before it ran."))

    @property
    def _outlet(self) -> Outlet:
        """Output between two cells comes from what the first has left running, and is shown with the second."""
        return self._between if self._run is None else self._run.cell.outlet

    def _room(self) -> int:
        return self._outlet.room

    def _next(self) -> None:
        if self._run is not None or self._restarts or not self._queue:
            return
        cell = self._queue.popleft()
        try:
            link = self.prepare()
        except Refused as refusal:
            cell.channel.fail(refusal)
            self._machine.loop.soon(self._next)
            return
        self._submitted += 1
        if "do" not in cell.request:
            self._cells += 1
        if cell.queued:
            cell.channel.send_event(STARTED)
        cell.outlet.take_over(self._between)
        self._run = CellRun(self._machine, link, cell, self._run_is_over)
        link.resume()

    def _run_is_over(self) -> None:
        run, link = self._run, self._link
        if run is None or link is None:
            return
        self._run = None
        run.cell.channel.answer(run.verdict(self._state_lost, self._cells))
        self._state_lost = False
        if link.alive and not link.reason:
            link.resume()
        else:
            self._drop(link)
        self._machine.loop.soon(self._next)

    def _output(self, stream: int, data: bytes) -> None:
        self._outlet.put(stream, data)

    def _hear(self, frame: Frame) -> None:
        if self._run is not None:
            self._run.hear(frame)
        elif frame.kind == DATA:  # a thread of an earlier cell has printed it
            self._between.put(STDERR if frame.stream == STDERR else STDOUT, frame.payload)

    def _exited(self) -> None:
        link = self._link
        if self.used:
            self._state_lost = True
            self._forget_frozen()
        if self._run is not None:
            self._run.exited()
        elif link is not None:
            self._drop(link)

    def _forget_frozen(self) -> None:
        """What was brought back and then lost is lost; only a process that has run nothing begins with it."""
        self.settings = self.settings._replace(frozen="")

    def _drop(self, link: ContextLink) -> None:
        self._link = None
        link.close()
