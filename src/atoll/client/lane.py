"""Streams of a sandbox's own to its contexts: a request on one wakes the context and nobody else.

The first request to a context goes through the guest, as every other operation does. From the second on a
client has a lane, if the driver's streams can be handed over; what is said on both is the same. A lane
has no credit: who does not read holds up the one context that writes to it.
"""

from __future__ import annotations

import json
import os
import weakref
from time import monotonic
from typing import Any

from ..driver import GuestStream
from ..errors import Busy, InvalidInput, ProtocolError, Unsupported
from ..io import Lock, Stream
from ..wire.frames import BULK, DATA, END, MAX_PAYLOAD, Decoder
from . import answers
from .links import Links
from .operation import Operation
from .running import GRACE
from .turn import Turn

_EAGER = 0.0004
"""Most cells that are short take less than that, and being woken up afterwards as long again."""

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
        self.taken_by: object = None

    def stand_up(self) -> None:
        self.taken_by = None
        self.lock.release()


class Lanes:
    """The ways to all contexts of a sandbox."""

    def __init__(self, links: Links) -> None:
        # Weak: streams in a circle of objects are not closed in order when nobody needs them any more.
        self._links = weakref.ref(links)
        self._seats: dict[str, Seat] = {}
        self._refused: set[str] = set()
        self._maker = os.getpid()

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
        wait: float | None = None,
    ) -> Visit:
        """Make a request: `message` on a lane where there is one, else `relayed` through the guest.

        Args:
            message: the request as JSON; None for what only the guest can do.
            payload: bytes that go along.
            wait: seconds to wait for other requests of this process, if not for as long as they take. Then it waits
                for those of others no longer than `timeout` either.

        Raises:
            Busy: others were not done in that time.
        """
        seat = await self._sit_down(context, wait)
        try:
            talk: Turn | Operation | None = None
            if message is not None and seat.used and context not in self._refused:
                if len(message) > MAX_PAYLOAD:
                    raise too_long(len(message))
                lane = seat.lane
                if lane is None or lane.maker != os.getpid():
                    lane = await self.lane(seat, context)
                if lane is not None:
                    talk = Turn(self, seat, lane, context, timeout, message, payload, queues=wait is None)
                    await talk.start()
            return Visit(seat, talk or await self._relay(seat, relayed, timeout, payload))
        except BaseException:
            seat.stand_up()
            raise

    async def _sit_down(self, context: str, wait: float | None) -> Seat:
        """Wait for the turn. Raises Busy for who would wait for itself, or longer than it may."""
        if self._maker != os.getpid():
            self._maker = os.getpid()
            self._seats = {}  # after a fork they are the parent's, and somebody there may sit on one
        seat = self._seats.get(context)
        if seat is None:
            seat = self._seats[context] = Seat(self.links.io.lock())
        who = self.links.io.who()
        if seat.taken_by == who:
            raise Busy(
                f"The context {context!r} runs a cell, and this is called by one of its callbacks.",
                hint="Use another context.",
            )
        if not await seat.lock.acquire(wait):
            raise Busy(f"A cell was still running in the context {context!r}.", hint="Wait longer, or interrupt it.")
        seat.taken_by = who
        return seat

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
            self._seat.stand_up()


def too_long(size: int) -> InvalidInput:
    return InvalidInput(
        f"The request takes {size} bytes; at most {MAX_PAYLOAD} fit. Pass large things with files.write, "
        "variables.set, or the stdin of a command."
    )


async def ask(
    links: Links,
    context: str,
    request: dict[str, Any],
    payload: bytes | memoryview | None = None,
    limit: int = 0,
    timeout: float | None = 60.0,
    wait: float | None = None,
) -> tuple[dict[str, Any], bytearray]:
    """Have a context do something other than a cell: its answer, and at most `limit` bytes that came with it.

    Args:
        wait: seconds to wait for what else runs there; see `Lanes.talk`.

    Raises:
        Busy: something else ran for longer.
        AtollError: what the context says went wrong; ProtocolError when it sends more than it may.
    """
    relayed = {"op": "ask", "context": context, "request": request, "timeout": timeout}
    message = _encode(request).encode("ascii")
    async with await links.lanes.talk(context, relayed, message, timeout, payload or b"", wait) as talk:
        received = talk.take_bulk(limit) if isinstance(talk, Turn) else bytearray()
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
