"""A context: a process that keeps its state between cells, with a queue of requests."""

from __future__ import annotations

import json
import socket
from collections import deque
from time import monotonic
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from ..wire.frames import DATA, STDERR, STDOUT, Frame
from . import languages
from .cellrun import Cell, CellRun, ticks
from .channel import Channel, Operation
from .contextlink import ContextLink, Listener
from .contextstart import ContextSettings
from .endings import death
from .lanes import MAX_LANES, Lane, Lanes, can_be_watched
from .loop import nothing
from .machine import Machine
from .outlet import Outlet
from .packets import DECLINED, READY, SETTLE, WATCH
from .pressing import Pressing
from .refusal import BUSY, CANCELLED, UNSUPPORTED, Refused
from .shared import Begun

_WATCH = 0.002
_LIVE = 0.005
"""How long output may lie in the shared page before it is shown."""


class Stop(Operation):
    """Somebody wants a request of a lane to end. With `force` its process is killed, whatever it says of itself."""

    def __init__(self, channel: Channel, *, force: bool) -> None:
        super().__init__(channel)
        self.force = force

    def begin(self) -> None:
        self.channel.send_event(b'{"stopping":true}')

    def finish(self, stopping: bool, left: float = 0.0) -> None:
        self.channel.end({"stopping": stopping, "left": left})


class Context:
    """One context. Its process is made for the first request, and again after it has died."""

    def __init__(self, machine: Machine, settings: ContextSettings) -> None:
        self.settings = settings
        self._machine = machine
        self._queue: Deque[Cell] = deque()
        self._run: Optional[CellRun] = None
        self._link: Optional[ContextLink] = None
        self._lanes = Lanes(machine.loop, self._lane_gone, self._lane_drained)
        self._between = Outlet(None)
        self._submitted = self._restarts = 0
        self._state_lost = False
        self._last_death: Dict[str, Any] = {}
        self._suspicion: Optional[Tuple[int, int, Begun]] = None
        self._settling = False
        self._settle_number = b""
        self._taken = 0
        self._watches = self._shows = False

    @property
    def busy(self) -> bool:
        return self._run is not None or bool(self._queue) or (self._link is not None and self._runs_lane(self._link))

    @property
    def used(self) -> bool:
        """Whether its process has run anything."""
        link = self._link
        if link is None:
            return False
        return self._submitted > 0 or (link.takes_lanes and link.shared.begun.since > 0)

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
        count = link.shared.begun.count if link is not None and link.takes_lanes else self._submitted
        return {
            "name": self.settings.name,
            "language": self.settings.language,
            "cwd": self._machine.root.absolute(self.settings.cwd),
            "pid": link.pid if link is not None and link.alive else None,
            "busy": self.busy,
            "count": count if link is not None else 0,
        }

    def prepare(self) -> ContextLink:
        """Its process, made ahead of the first request if there is none. Raises Refused."""
        self._machine.reaper.reap()  # it may have died just now, which the next request must not suffer from
        if self._link is None:
            listener = Listener(self._hear, self._output, self._room, self._exited, self._reading)
            own = self.settings.language == "python" and not self._machine.config.kernel
            if not own and self._machine.become is not None:
                # What was kept names its language, and may have been written by the code inside.
                raise Refused(UNSUPPORTED, "This sandbox has contexts for Python only.")
            make = ContextLink if own else languages.link_for(self.settings.language)
            self._link = make(self._machine, listener, self.settings)
            self._submitted = 0
        return self._link

    def dress(self) -> None:
        """The sandbox's environment is another one than when its process was made. One that has run something keeps
        what it has."""
        link = self._link
        if link is None or self.busy or self.used or len(self._lanes):
            return
        if link.takes_lanes:
            env = {**self._machine.config.environment(), **self.settings.env}
            link.request(json.dumps({"do": "dress", "env": env}).encode("ascii"))
        else:
            self.discard_unused()

    def discard_unused(self) -> None:
        """End a process that has run nothing, and that nobody wants to use now."""
        if self._link is not None and not self.busy and not self.used and not len(self._lanes):
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
        cell.cancelled = self._cancel
        self._queue.append(cell)
        self._next()

    def interrupt(self) -> bool:
        """Whether there was something to interrupt."""
        if self._run is not None:
            return self._run.interrupt()
        return self._link is not None and self._link.interrupt()

    def take_lane(self, sock: socket.socket) -> None:
        """Give a client's stream to the process. Raises Refused."""
        link = self._lane_link()
        # The context shares the file description: it blocks there, and here single sends do not. Before the context
        # has it, for what the client has sent by then may be half of its request.
        sock.setblocking(True)
        try:
            link.add_lane(self._lanes.upcoming(), sock)
        except OSError as error:
            raise Refused(BUSY, "The context takes no more streams now.") from error
        self._lanes.add(sock)

    def check_lane(self) -> Dict[str, Any]:
        """What a client must know of the lane that it gets. Raises Refused where there can be none."""
        self._lane_link()
        if len(self._lanes) >= MAX_LANES:
            raise Refused(BUSY, "This context already has %d streams." % MAX_LANES)
        lost, self._state_lost = self._state_lost, False
        return {"lane": self._lanes.upcoming(), "state_lost": lost}

    def stop_lane(self, lane: int, channel: int, timeout: float, stop: Stop) -> None:
        """End a request of a lane that is out of time; unless it has not begun, or not that long ago."""
        link = self._link
        if link is None or not link.alive or not link.takes_lanes:
            stop.finish(stopping=False)
            return
        begun = link.shared.begun
        # Who says twice that nothing runs, and takes no request in between, does not tell the truth.
        suspicion = None if self.busy else (lane, channel, begun)
        force = stop.force or (suspicion is not None and suspicion == self._suspicion)
        # Nor does who is busy with an earlier request of a lane whose client has seen the end of that.
        force = force or (begun.lane == lane and begun.channel != channel)
        self._suspicion = suspicion
        if not force:
            left = timeout
            if (begun.lane, begun.channel) == (lane, channel):
                left -= monotonic() - begun.since
            if left > 0:
                stop.finish(stopping=False, left=left)
                return
        stop.begin()
        if force:
            link.kill()
        self._press_lane(link, lane, channel, begun.since, lambda: stop.finish(stopping=True))

    def _press_lane(self, link: ContextLink, lane: int, channel: int, since: float, done: Callable[[], None]) -> None:
        pressing = Pressing(self._machine, link, lane)

        def next_began() -> Optional[int]:
            """When the request after this one began, if one has."""
            begun = link.shared.begun
            if not link.alive or begun.lane == 0 or (begun.lane, begun.channel) == (lane, channel):
                return None
            return ticks(min(begun.since, monotonic()))

        def look() -> None:
            begun = link.shared.begun
            if link.alive and (begun.lane, begun.channel) == (lane, channel):
                self._machine.loop.after(_WATCH, look)
                return
            pressing.cease()
            spared = link.pid if link.alive else 0
            start = ticks(min(since, monotonic()))
            self._machine.killer.kill_since(link.mark, start, spared, done, until=next_began)

        look()

    def postmortem(self) -> Dict[str, Any]:
        """How its last process ended, for a client whose lane ended with it."""
        self._machine.reaper.reap()
        self._state_lost = False
        return self._last_death

    def _lane_link(self) -> ContextLink:
        link = self.prepare()
        if not link.takes_lanes:
            raise Refused(UNSUPPORTED, "Contexts of this language have no streams of their own.")
        if not can_be_watched():
            raise Refused(UNSUPPORTED, "Contexts have no streams of their own where no hangup is told.")
        return link

    def _runs_lane(self, link: ContextLink) -> bool:
        return link.takes_lanes and link.shared.begun.lane != 0

    def _lane_gone(self, lane: Lane) -> None:
        """A client has hung up: what it was running is cancelled."""
        link = self._link
        if link is None:
            return
        begun = link.shared.begun
        if begun.lane == lane.number:
            self._press_lane(link, lane.number, begun.channel, begun.since, nothing)
        link.resume()  # nobody holds it up any more
        self._finish_settling()

    def _lane_drained(self) -> None:
        link = self._link
        if link is not None:
            link.shared.relaying = False
            link.resume()
        self._finish_settling()

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

    def _lane_now(self) -> Tuple[Optional[Lane], int]:
        """The lane that output of processes belongs to, if a request of one runs, and its channel."""
        link = self._link
        if link is None or not link.takes_lanes:
            return None, 0
        begun = link.shared.begun
        return self._lanes.get(begun.lane) if begun.lane else None, begun.channel

    def _room(self) -> int:
        lane, _ = self._lane_now()
        return self._outlet.room if lane is None else lane.room

    def _reading(self, begins: bool) -> None:
        """The context must know of output that is neither in its pipe nor with its client.

        It is told before the lane is looked up. A context that ends a request does these the other way round,
        so that one of the two notices the other.
        """
        link = self._link
        if link is not None and link.takes_lanes:
            link.shared.relaying = begins or not self._lanes.empty

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
        cell.outlet.take_over(self._between)
        if link.takes_lanes:
            link.shared.waiting = False
        self._run = CellRun(self._machine, link, cell, self._run_is_over, waits=len(self._lanes) > 0)
        link.resume()

    def _run_is_over(self) -> None:
        run, link = self._run, self._link
        if run is None or link is None:
            return
        self._run = None
        run.cell.channel.answer(run.verdict(self._state_lost, self._submitted))
        self._state_lost = False
        if link.alive and not link.reason:
            link.resume()
        else:
            self._drop(link)
        self._machine.loop.soon(self._next)

    def _output(self, stream: int, data: bytes) -> None:
        lane, channel = self._lane_now()
        if lane is None:
            self._keep(stream, data)
        else:
            self._take_left(lane, channel)
            lane.put(channel, stream, data)

    def _keep(self, stream: int, data: bytes) -> None:
        outlet = self._outlet
        outlet.put(stream, data)
        if outlet is self._between and self._link is not None and self._link.takes_lanes:
            self._link.shared.waiting = True

    def _hear(self, frame: Frame) -> None:
        if frame.kind == SETTLE:
            self._settle(frame.payload)
        elif frame.kind == WATCH:
            self._watches = True
            if not self._shows:
                self._shows = True
                self._machine.loop.after(_LIVE, self._show_left)
        elif frame.kind == READY:
            self._admit()
        elif frame.kind == DECLINED:
            self._lanes.end(int.from_bytes(frame.payload[:4], "little"))
        elif self._run is not None and self._run.begun:
            self._run.hear(frame)
        elif frame.kind == DATA:
            # A thread of an earlier cell has printed it. By now a lane may run, or may just have ended.
            self._keep(STDERR if frame.stream == STDERR else STDOUT, frame.payload)

    def _admit(self) -> None:
        """The context is about to begin the request that it was given while it was busy."""
        if self._link is not None:
            self._link.admit(self._run is not None and self._run.begin())

    def _show_left(self) -> None:
        """Send on what the cell has left in the shared page, so that it is seen while the cell goes on."""
        lane, channel = self._lane_now()
        self._shows = lane is not None and self._link is not None and self._watches
        if self._shows:
            self._take_left(lane, channel)
            self._machine.loop.after(_LIVE, self._show_left)

    def _take_left(self, lane: Optional[Lane], channel: int) -> None:
        if lane is None or self._link is None or not self._watches:
            return
        shared = self._link.shared
        used = shared.used
        if used > self._taken and lane.empty:
            lane.put(channel, STDOUT, shared.left(self._taken, used))
            self._taken = used

    def _settle(self, number: bytes) -> None:
        """Send on to the lane that runs what has come between two cells, and what its processes have written."""
        link = self._link
        if link is None:
            return
        lane, channel = self._lane_now()
        if lane is not None:
            link.shared.cut, self._between.truncated = self._between.truncated, False
            for stream, data in self._between.taken():
                lane.put(channel, stream, data)
            link.shared.waiting = False
        self._settle_number = number
        self._settling = True
        link.settle(self._finish_settling)
        link.resume()

    def _finish_settling(self) -> None:
        """Done when all is on its way, or nobody is there any more."""
        link = self._link
        if not self._settling or link is None or link.settling:
            return
        self._take_left(*self._lane_now())
        if self._lanes.empty:
            self._taken = 0
            self._settling = self._watches = link.shared.relaying = False
            link.settled(self._settle_number)

    def _exited(self) -> None:
        link = self._link
        if self.used:
            self._state_lost = True
            self._forget_frozen()
        if link is not None and link.takes_lanes:
            begun = link.shared.begun
            dead = {"lane": begun.last, "channel": begun.channel, "count": begun.count}
            if begun.last or self._run is None:
                self._last_death = {**dead, "error": death(link, self._machine)}
            self._taken = 0
            self._settling = self._watches = False
            self._lanes.close()
        if self._run is not None:
            self._run.exited()
        elif link is not None:
            self._drop(link)

    def _forget_frozen(self) -> None:
        """What was brought back and then lost is lost; only a process that has run nothing begins with it."""
        self.settings = self.settings._replace(frozen="")

    def _drop(self, link: ContextLink) -> None:
        self._link = None
        self._lanes.close()
        link.close()
