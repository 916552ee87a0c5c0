"""Requests of one client to the contexts of a sandbox: one at a time for each context, and what each answers."""

from __future__ import annotations

import os
import weakref
from time import monotonic
from typing import Any, Self

from ..errors import Busy, ProtocolError, Unresponsive
from ..io import Lock
from ..wire.frames import BULK, DATA, END, EVENT, QUEUED, STARTED, Frame
from .links import Links
from .operation import Operation
from .running import GRACE

_PATIENCE = 60.0
"""How much longer than three times its own time a request may wait for those of other clients."""

_CLOSE = 0.05
"""What is said to a cell with less time than that would hardly reach it."""


class _Place:
    """One context, as one client sees it: its requests go one after the other."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.taken_by: object = None

    def leave(self) -> None:
        self.taken_by = None
        self.lock.release()


class ContextQueue:
    """All contexts of a sandbox."""

    def __init__(self, links: Links) -> None:
        # Weak: streams in a circle of objects are not closed in order when nobody needs them any more.
        self._links = weakref.ref(links)
        self._places: dict[str, _Place] = {}
        self._maker = os.getpid()

    @property
    def links(self) -> Links:
        links = self._links()
        if links is None:
            raise ReferenceError("The sandbox object that these streams belong to is gone.")
        return links

    async def begin(
        self,
        request: dict[str, Any],
        payload: bytes | memoryview = b"",
        wait: float | None = None,
    ) -> Turn:
        """Make a request, an operation with `context` and `timeout`.

        Args:
            payload: bytes that go along.
            wait: seconds to wait for what else runs there, if not for as long as it takes.

        Raises:
            Busy: others were not done in that time.
        """
        until = None if wait is None else monotonic() + wait
        place = await self._enter(request["context"], wait)
        try:
            request = {**request, "turns": True}
            if until is not None:
                request["wait"] = max(0.0, until - monotonic())
            turn = Turn(place, await self.links.open(request, quiet=None), request)
        except BaseException:
            place.leave()
            raise
        try:
            if payload:
                await turn.operation.send(payload)
        except BaseException:
            turn.leave()
            raise
        return turn

    async def _enter(self, context: str, wait: float | None) -> _Place:
        """Wait for the turn. Raises Busy for who would wait for itself, or longer than it may."""
        if self._maker != os.getpid():
            self._maker = os.getpid()
            self._places = {}  # after a fork they are the parent's, and somebody there may be at one
        place = self._places.get(context)
        if place is None:
            place = self._places[context] = _Place(self.links.io.lock())
        who = self.links.io.who()
        if place.taken_by == who:
            raise Busy(
                f"The context {context!r} runs a cell, and this is called by one of its callbacks.",
                hint="Use another context.",
            )
        if not await place.lock.acquire(wait):
            raise Busy(f"A cell was still running in the context {context!r}.", hint="Wait longer, or interrupt it.")
        place.taken_by = who
        return place


class Turn:
    """A request that has been made, until it has ended or was given up.

    Its time begins when those of other clients before it are over, which the guest says.
    """

    def __init__(self, place: _Place, operation: Operation, request: dict[str, Any]) -> None:
        self.operation = operation
        self._place = place
        self._context = request["context"]
        self._timeout: float | None = request["timeout"]
        self._queued: bool | None = None
        self._left = False
        self._give(0.0)

    def _give(self, more: float) -> None:
        """Let it take its time from now on, and some `more`."""
        if self._timeout is not None:
            self._until = monotonic() + self._timeout
            self.operation.deadline = self._until + GRACE + more

    async def next(self) -> Frame:
        """The next DATA, EVENT or END.

        Raises:
            Busy: its turn did not come.
            Unresponsive, SandboxGone, ProtocolError: it is over.
        """
        while True:
            try:
                frame = await self.operation.next()
            except Unresponsive:
                if self._queued:
                    raise Busy(f"The context {self._context!r} did not get to the request in time.") from None
                raise
            if frame.kind != EVENT or frame.payload not in (QUEUED, STARTED):
                return frame
            self._wait(frame)

    def _wait(self, frame: Frame) -> None:
        """The guest says that others come first, or that they are over: once each, or it could hold us up for ever."""
        if frame.payload == QUEUED and self._queued is None:
            self._queued = True
            self._give(2 * (self._timeout or 0.0) + _PATIENCE)
        elif frame.payload == STARTED and self._queued:
            self._queued = False
            self._give(0.0)
        else:
            raise self.operation.unexpected(frame)

    @property
    def left(self) -> float | None:
        """Seconds until its own time is up."""
        return None if self._timeout is None else max(self._until - monotonic(), 0.0)

    async def call(self, **request: Any) -> None:
        """Say something to the request. One that is all but out of time hears nothing more: the guest stops it."""
        left = self.left
        if left is None or left > _CLOSE:
            await self.operation.call(**request)

    def leave(self) -> None:
        """Give up what has not ended, and let others have their turn. Leaving twice does nothing."""
        if not self._left:
            self._left = True
            self.operation.close()
            self._place.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.leave()


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
        wait: seconds to wait for what else runs there; see `ContextQueue.begin`.

    Raises:
        Busy: something else ran for longer.
        AtollError: what the context says went wrong; ProtocolError when it sends more than it may.
    """
    operation = {"op": "ask", "context": context, "request": request, "timeout": timeout}
    async with await links.contexts.begin(operation, payload or b"", wait) as turn:
        received = bytearray()
        while (frame := await turn.next()).kind != END:
            if frame.kind != DATA or frame.stream != BULK:
                continue  # what code of an object prints on the way interests nobody
            if len(received) + len(frame.payload) > limit:
                raise ProtocolError(f"The guest sent more than {limit} bytes.")
            received += frame.payload
        return turn.operation.answer(frame), received
