"""Streams of a sandbox's own to its contexts: a request on one wakes the context and nobody else.

The first request to a context goes through the guest, as every other operation does. From the second on a
client has a lane, if the driver's streams can be handed over; what is said on both is the same. A lane
has no credit: who does not read holds up the one context that writes to it.
"""

from __future__ import annotations

import json
import os
import weakref
from collections import deque
from time import monotonic
from typing import Any

from ..driver import GuestStream
from ..errors import InvalidInput, ProtocolError, Unresponsive, Unsupported, from_wire
from ..io import Lock, Stream
from ..wire import frames
from ..wire.frames import BULK, CALL, DATA, DATA_SIZE, END, EVENT, HEADER, MAX_PAYLOAD, OPEN, STDIN, Decoder, Frame
from . import answers
from .links import Links
from .operation import Closed, Operation
from .running import GRACE

_EAGER = 0.00015
"""Most cells that are short take less than that, and being woken up afterwards as long again."""

_CLOSE = 0.05
"""What is said to a cell with less time than that would hardly reach it."""

_QUEUE = 60.0
"""How much longer than its own time a request may wait for requests of other processes in its context."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Lane:
    """A stream that a context listens to. `channel` numbers the requests on it.

    It must not be used by a fork of its maker. That its context is gone is seen in use.
    """

    def __init__(self, stream: GuestStream, decoder: Decoder, channel: int, number: int, *, state_lost: bool) -> None:
        self.stream = stream
        self.decoder = decoder
        self.channel = channel
        self.number = number
        self.state_lost = state_lost
        self.maker = os.getpid()


class Seat:
    """One context, as one client sees it: its requests go one after the other."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.lane: Lane | None = None
        self.used = False


class Lanes:
    """The ways to all contexts of a sandbox."""

    def __init__(self, links: Links) -> None:
        # Weak: streams in a circle of objects are not closed in order when nobody needs them any more.
        self._links = weakref.ref(links)
        self._seats: dict[str, Seat] = {}
        self._refused: set[str] = set()

    @property
    def links(self) -> Links:
        links = self._links()
        if links is None:
            raise ReferenceError("The sandbox object that these streams belong to is gone.")
        return links

    async def talk(
        self,
        context: str,
        relayed: dict[str, Any],
        message: bytes | None,
        timeout: float | None,
        payload: bytes | memoryview = b"",
    ) -> Visit:
        """Make a request: `message` on a lane where there is one, else `relayed` through the guest.

        Args:
            message: the request as JSON; None for what only the guest can do.
            payload: bytes that go along.
        """
        seat = self._seats.get(context)
        if seat is None:
            seat = self._seats[context] = Seat(self.links.io.lock())
        await seat.lock.acquire()
        try:
            talk: Turn | Operation | None = None
            if message is not None and seat.used and context not in self._refused:
                if len(message) > MAX_PAYLOAD:
                    raise too_long(len(message))
                lane = seat.lane
                if lane is None or lane.maker != os.getpid():
                    lane = await self.lane(seat, context)
                if lane is not None:
                    talk = Turn(self, seat, lane, context, timeout, message, payload)
                    await talk.start()
            return Visit(seat, talk or await self._relay(seat, relayed, timeout, payload))
        except BaseException:
            seat.lock.release()
            raise

    async def lane(self, seat: Seat, context: str) -> Lane | None:
        """A new lane to a context; None where there can be none."""
        self.drop(seat)
        seat.lane = await self._open(context)
        if seat.lane is None:
            self._refused.add(context)
        return seat.lane

    async def _relay(
        self, seat: Seat, request: dict[str, Any], timeout: float | None, payload: bytes | memoryview
    ) -> Operation:
        seat.used = True
        deadline = None if timeout is None else monotonic() + timeout + GRACE
        operation = await self.links.open(request, quiet=None, deadline=deadline)
        try:
            await operation.send(payload)
        except BaseException:
            operation.close()
            raise
        return operation

    async def _open(self, context: str) -> Lane | None:
        """A lane, or None where there can be none."""
        link, operation = await self.links.apart({"op": "lane", "context": context})
        try:
            answer = await operation.end()
            number, lost = answers.integer(answer, "lane"), answers.flag(answer, "state_lost")
        except Unsupported:
            link.close()
            return None
        except BaseException:
            link.close()
            raise
        stream, decoder = link.hand_over()
        if isinstance(stream, Stream):
            stream.eager = _EAGER
        return Lane(stream, decoder, link.channel, number, state_lost=lost)

    def drop(self, seat: Seat) -> None:
        if seat.lane is not None:
            seat.lane.stream.close()
            seat.lane = None

    def close(self) -> None:
        """Close what is open; a request under way is given up, and a context that is needed again is found anew."""
        for seat in self._seats.values():
            self.drop(seat)
            seat.used = False


class Visit:
    """A talk that gives the seat back when it is over."""

    def __init__(self, seat: Seat, talk: Turn | Operation) -> None:
        self._seat = seat
        self.talk = talk
        self._left = False

    async def __aenter__(self) -> Turn | Operation:
        return self.talk

    async def __aexit__(self, *exc: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give up what has not ended. Leaving twice does nothing."""
        if not self._left:
            self._left = True
            self.talk.close()
            self._seat.lock.release()


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
    ) -> None:
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
            await lane.stream.send(HEADER.pack(len(self._message), self._channel, OPEN, 0) + self._message)
            if self._payload:
                await self._send_payload(memoryview(self._payload))
        except OSError:
            await self._begin_again()
        except BaseException:
            self.close()
            raise

    async def _send_payload(self, view: memoryview) -> None:
        for at in range(0, len(view), DATA_SIZE):
            piece = view[at : at + DATA_SIZE]
            await self._lane.stream.send(HEADER.pack(len(piece), self._channel, DATA, STDIN) + piece)

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
            self._frames.extend(self._lane.decoder.feed(data))
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
            await self._lane.stream.send(HEADER.pack(len(message), self._channel, CALL, 0) + message)
        except OSError:
            return  # that it is gone is seen by who reads
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


def too_long(size: int) -> InvalidInput:
    return InvalidInput(
        f"The request takes {size} bytes; at most {MAX_PAYLOAD} fit. Pass large things by stdin or as a file."
    )


async def ask(
    links: Links,
    context: str,
    request: dict[str, Any],
    payload: bytes | memoryview | None = None,
    limit: int = 0,
    timeout: float | None = 60.0,
) -> tuple[dict[str, Any], bytearray]:
    """Have a context do something other than a cell: its answer, and at most `limit` bytes that came with it.

    Raises:
        AtollError: what the context says went wrong; ProtocolError when it sends more than it may.
    """
    relayed = {"op": "ask", "context": context, "request": request, "timeout": timeout}
    received = bytearray()
    message = _encode(request).encode("ascii")
    async with await links.lanes.talk(context, relayed, message, timeout, payload or b"") as talk:
        while (frame := await talk.next()).kind != END:
            if frame.kind != DATA or frame.stream != BULK:
                continue  # what code of an object prints on the way interests nobody
            if len(received) + len(frame.payload) > limit:
                raise ProtocolError(f"The guest sent more than {limit} bytes.")
            received += frame.payload
        answer = talk.answer(frame)
        if isinstance(talk, Turn):
            await talk.wind_up()
    return answer, received
