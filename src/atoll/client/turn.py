"""One request on a lane, from its OPEN to its END."""

from __future__ import annotations

import json
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..errors import Busy, InvalidInput, ProtocolError, TimedOut, Unresponsive, from_wire
from ..wire import frames
from ..wire.frames import BULK, CALL, DATA, DATA_SIZE, END, EVENT, HEADER, OPEN, STDIN, Frame
from . import answers
from .bulk import BulkTaker
from .operation import Closed, Operation
from .running import GRACE

if TYPE_CHECKING:
    from .lane import Lane, Lanes, Seat

_CLOSE = 0.05
"""What is said to a cell with less time than that would hardly reach it."""

_SLACK = 0.5
"""What a send gets beyond the time of its request."""

_QUEUE = 60.0
"""How much longer than its own time a request may wait for requests of other processes in its context."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Turn:
    """One request on a lane, from OPEN to END. Anything that interrupts it closes the lane, which cancels it.

    Attributes:
        timed_out: whether it was stopped because its time was up.
        state_lost: whether variables of earlier requests are gone.
        started: when it was sent.
    """

    timed_out = False
    state_lost = False
    started = 0.0
    _heard = False
    _again = False
    _late = False
    _forced = False
    _ended = False
    _stop: Operation | None = None
    _bulk: BulkTaker | None = None
    _channel = 0
    _deadline: float | None = None

    def __init__(
        self,
        lanes: Lanes,
        seat: Seat,
        lane: Lane,
        context: str,
        timeout: float | None,
        message: bytes,
        payload: bytes | memoryview,
        *,
        queues: bool = True,
    ) -> None:
        """`queues` is whether it may begin after its time, when requests of other processes took that."""
        self._queues = queues
        self._lanes = lanes
        self._seat = seat
        self._lane = lane
        self._context = context
        self._timeout = timeout
        self._message = message
        self._payload = payload
        self._frames: deque[Frame] = deque()

    async def start(self) -> None:
        """Send it; once more on another lane, if the context is gone before it could take it."""
        lane = self._lane
        self._channel = lane.channel = lane.channel + 1
        self.started = monotonic()
        self._deadline = None if self._timeout is None else self.started + self._timeout
        if lane.state_lost:
            lane.state_lost, self.state_lost = False, True
        try:
            header = HEADER.pack(len(self._message), self._channel, OPEN, 0)
            await lane.stream.send(header + self._message, self._patience)
            if self._payload:
                await self._send_payload(memoryview(self._payload))
        except TimeoutError:
            self.close()
            raise TimedOut(
                f"The context {self._context!r} has not taken the request in time.",
                hint="Something else runs in it, or it was stopped: interrupt or restart it.",
            ) from None
        except OSError:
            await self._begin_again()
        except BaseException:
            self.close()
            raise

    async def _send_payload(self, view: memoryview) -> None:
        for at in range(0, len(view), DATA_SIZE):
            piece = view[at : at + DATA_SIZE]
            header = HEADER.pack(len(piece), self._channel, DATA, STDIN)
            await self._lane.stream.send(header + piece, self._patience)

    @property
    def _patience(self) -> float | None:
        """How long a send may take."""
        left = self.left
        return None if left is None else left + _SLACK

    async def _begin_again(self) -> None:
        """At most once: a context may lie about what it was doing when it died."""
        self._lanes.drop(self._seat)
        await self._lanes.links.check()
        lane = None if self._again else await self._lanes.lane(self._seat, self._context)
        if lane is None:
            raise Unresponsive(f"The context {self._context!r} takes no requests.")
        self._again = True
        self._lane = lane
        await self.start()

    def take_bulk(self, limit: int) -> bytearray:
        """Where the bulk of the answer will be; of it come no frames. To be called before the first `next`."""
        self._bulk = BulkTaker(self._channel, limit)
        return self._bulk.taken

    async def next(self, timeout: float | None = None) -> Frame:
        """The next DATA, EVENT or END. `timeout` is of no use here.

        Raises:
            Unresponsive, SandboxGone, Busy, ProtocolError: it is over.
        """
        while not self._frames:
            await self._fill()
        return self._frames.popleft()

    async def _fill(self) -> None:
        if self._ended:
            raise Closed
        try:
            left = self.left
            if left == 0.0 and self._late:
                raise TimeoutError  # who never stops talking is late, too
            self._late = left == 0.0
            data = await self._lane.stream.recv(left)
            if data:
                self._heard = True
                self._accept(data)
                return
        except TimeoutError:
            self._late = False
            await self._expire()
            return
        except OSError:
            pass
        except BaseException:
            self.close()
            raise
        if self._ended:
            raise Closed  # another thread or task gave it up
        try:
            await self._explain()
        except BaseException:
            self.close()
            raise

    def _accept(self, data: bytes) -> None:
        try:
            self._frames.extend((self._bulk or self._lane.decoder).feed(data))
        except frames.BadFrame as error:
            raise ProtocolError(f"The guest broke the protocol: {error}.") from error
        for channel, kind, stream, _ in self._frames:
            if channel != self._channel or self._ended:
                self._ended = False  # so that `close` gives up the lane, too
                raise ProtocolError("The guest answered a request that nobody made.")
            if kind == END:
                self._ended = True
            elif kind != EVENT and (kind != DATA or not 0 < stream <= BULK):
                raise ProtocolError(f"The guest sent a frame of kind {kind} where none belongs.")

    async def _expire(self) -> None:
        """The time is up: have the guest end the request, if it began that long ago."""
        try:
            now = monotonic()
            timeout = self._timeout or 0.0
            if self._stop is not None:
                raise Unresponsive("The guest did not end a cell that is out of time.")
            force = now - self.started > 3 * timeout + _QUEUE
            stop = await self._lanes.links.open(
                {
                    "op": "stop", "context": self._context, "lane": self._lane.number, "channel": self._channel,
                    "after": timeout, "force": force,
                }
            )  # fmt: skip
            frame = await stop.next()
            if frame.kind == EVENT:
                self._stop = stop
                stop.be_patient()
                self.timed_out = True
                self._deadline = monotonic() + GRACE
                return
            left = answers.number(stop.answer(frame), "left")
            if not self._queues:
                raise Busy(f"The context {self._context!r} did not get to the request in time.")
            if self._forced:
                raise Unresponsive("The guest did not end a cell that is out of time.")
            self._forced = force
            self._deadline = monotonic() + min(max(left, 0.02), max(timeout, 1.0))
        except BaseException:
            self.close()
            raise

    async def _explain(self) -> None:
        """The stream has ended: the context died, and its guest knows how."""
        self._lanes.drop(self._seat)
        links = self._lanes.links
        await links.check()
        try:
            death = await links.ask("postmortem", context=self._context)
        except InvalidInput:
            death = {
                "lane": self._lane.number, "channel": self._channel, "count": 0,
                "error": {"name": "ContextDied", "value": "the context was deleted", "traceback": ""},
            }  # fmt: skip
        if (
            not (
                death
                and answers.integer(death, "lane") == self._lane.number
                and answers.integer(death, "channel") == self._channel
            )
            and not self.timed_out
        ):
            if self._heard:
                raise ProtocolError("The guest ended a stream in the middle of a request.")
            await self._begin_again()
            return
        self.state_lost = True
        count = max(answers.integer(death, "count"), 0) if death else 0
        said = {"count": count, "error": death.get("error"), "truncated": False}
        self._frames.append(Frame(self._channel, END, 0, _encode({"ok": said}).encode("ascii")))
        self._ended = True

    @property
    def left(self) -> float | None:
        """Seconds until its time is up, as far as this side knows."""
        return None if self._deadline is None else max(self._deadline - monotonic(), 0.0)

    async def call(self, **request: Any) -> None:
        """Say something to the request. One that is out of time hears nothing more: it is stopped."""
        while not self.timed_out and (left := self.left) is not None and left < _CLOSE:
            await self._lanes.links.io.sleep(left)
            await self._expire()
        if self.timed_out:
            return
        message = _encode(request).encode("ascii")
        try:
            await self._lane.stream.send(HEADER.pack(len(message), self._channel, CALL, 0) + message, self._patience)
        except OSError:
            return  # that it is gone, or late, is seen by who reads
        except BaseException:
            self.close()
            raise

    def json(self, frame: Frame) -> dict[str, Any]:
        try:
            return frame.json()
        except frames.BadFrame as error:
            self.close()
            raise ProtocolError(f"The guest broke the protocol: {error}.") from error

    def answer(self, frame: Frame) -> dict[str, Any]:
        """What an END says. Raises the error it reports."""
        said = self.json(frame)
        ok, error = said.get("ok"), said.get("error")
        if type(ok) is dict:
            return ok
        if type(error) is dict:
            raise from_wire(error)
        raise ProtocolError("The guest ended an operation without saying how.")

    async def wind_up(self) -> None:
        """After the END of one that timed out: wait until what it has started is gone, too."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            await stop.end()

    def close(self) -> None:
        """Give it up, unless it has ended and all of it was taken. Then the context ends what it was doing."""
        if not self._ended or self._frames:
            self._ended = True
            self._frames.clear()
            self._lanes.drop(self._seat)
        if self._stop is not None:
            self._stop.close()
            self._stop = None
