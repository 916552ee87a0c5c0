"""Contexts: Python processes that keep their variables between cells, with a queue of cells each."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, Optional

from ..wire.frames import DATA, STDERR, STDOUT, Frame
from .arguments import Arguments, encoded
from .cellrun import Cell, CellRun
from .channel import Channel, Operation
from .contextlink import ContextLink, Listener
from .machine import Machine
from .outlet import Outlet
from .refusal import BUSY, CANCELLED, Refused, invalid

_MAX_CONTEXTS = 64
_NAME_LIMIT = 200


class Context:
    """One context. Its process is made for the first cell, and again after it has died."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._queue: Deque[Cell] = deque()
        self._run: Optional[CellRun] = None
        self._link: Optional[ContextLink] = None
        self._between = Outlet(None)
        self._count = 0
        self._state_lost = False

    def prepare(self) -> ContextLink:
        """Its process, made ahead of the first cell if there is none. Raises Refused."""
        self._machine.reaper.reap()  # it may have died just now, which the next cell must not suffer from
        if self._link is None:
            listener = Listener(self._hear, self._output, lambda: self._outlet.room, self._exited)
            self._link = ContextLink(self._machine, listener)
            self._count = 0
        return self._link

    def discard_unused(self) -> None:
        if self._run is None and not self._queue and self._count == 0:
            self.discard()

    def discard(self) -> None:
        """End its process, which has run no cell."""
        if self._link is not None:
            self._drop(self._link)

    def renew_unused(self) -> None:
        """Have a process that has not run anything yet made anew, when it is needed."""
        if self._link is not None and self._count == 0:
            self._link.kill()
            self._drop(self._link)

    def submit(self, cell: Cell) -> None:
        cell.cancelled = self._cancel
        self._queue.append(cell)
        self._next()

    def interrupt(self) -> bool:
        """Whether there was something to interrupt."""
        return self._run is not None and self._run.interrupt()

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

    def _next(self) -> None:
        if self._run is not None or not self._queue:
            return
        cell = self._queue.popleft()
        try:
            link = self.prepare()
        except Refused as refusal:
            cell.channel.fail(refusal)
            self._machine.loop.soon(self._next)
            return
        self._count += 1
        cell.outlet.take_over(self._between)
        self._run = CellRun(self._machine, link, cell, self._count, self._run_is_over)
        link.resume()

    def _run_is_over(self) -> None:
        run, link = self._run, self._link
        if run is None or link is None:
            return
        self._run = None
        run.cell.channel.end(run.verdict(self._state_lost))
        self._state_lost = False
        if link.alive:
            link.resume()
        else:
            self._drop(link)
        self._machine.loop.soon(self._next)

    def _output(self, stream: int, data: bytes) -> None:
        self._outlet.put(stream, data)

    def _hear(self, frame: Frame) -> None:
        if self._run is not None:
            self._run.hear(frame)
        elif frame.kind == DATA:
            self._between.put(STDERR if frame.stream == STDERR else STDOUT, frame.payload)

    def _exited(self) -> None:
        self._state_lost = self._state_lost or self._count > 0
        if self._run is not None:
            self._run.exited()
        elif self._link is not None:
            self._drop(self._link)

    def _drop(self, link: ContextLink) -> None:
        self._link = None
        link.close()


class Contexts:
    """The operations `code` and `interrupt`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._contexts: Dict[str, Context] = {}

    def prepare(self, name: str = "main") -> None:
        """Make a context's process ahead of its first cell."""
        self._get(name).prepare()

    def discard_unused(self) -> None:
        """End prepared processes that have run nothing: they cost memory, and a first cell makes one anew."""
        for context in self._contexts.values():
            context.discard_unused()

    def forget(self) -> None:
        """Drop contexts that were prepared before the guest knew its environment; they have run nothing."""
        for context in self._contexts.values():
            context.discard()
        self._contexts.clear()

    def renew_unused(self) -> None:
        """The configuration has changed."""
        for context in self._contexts.values():
            context.renew_unused()

    def run(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        arguments = Arguments(request)
        wanted = {
            "code": arguments.text("code"),
            "env": self._checked_env(arguments.mapping("env")),
            "cwd": self._checked_cwd(arguments.optional_text("cwd")),
        }
        cell = Cell(channel, wanted, arguments.seconds("timeout"), arguments.count("limit"))
        self._get(arguments.text("context", "main")).submit(cell)
        return cell

    def interrupt(self, arguments: Arguments) -> Dict[str, Any]:
        context = self._contexts.get(arguments.text("context", "main"))
        return {"interrupted": context is not None and context.interrupt()}

    def _get(self, name: str) -> Context:
        context = self._contexts.get(name)
        if context is None:
            if not name or len(name) > _NAME_LIMIT:
                raise invalid("The name of a context has 1 to %d characters." % _NAME_LIMIT)
            if len(self._contexts) >= _MAX_CONTEXTS:
                raise Refused(BUSY, "This sandbox already has %d contexts." % _MAX_CONTEXTS)
            context = self._contexts[name] = Context(self._machine)
        return context

    def _checked_cwd(self, cwd: Optional[str]) -> Optional[str]:
        if cwd is None:
            return None
        self._machine.enter(cwd)
        return self._machine.root.real(cwd)

    def _checked_env(self, env: Dict[str, str]) -> Dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name:
                raise invalid("%r is not a name for an environment variable." % name[:100])
            encoded(name, "An environment variable")
            encoded(value, "An environment variable")
        return env
