"""One operation of a guest, from OPEN to END, with credit both ways."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Self

from ..errors import ProtocolError, TimedOut, from_wire
from ..wire import frames
from ..wire.frames import (
    BULK,
    CALL,
    CREDIT,
    DATA,
    DATA_SIZE,
    END,
    EOF,
    EVENT,
    HEADER,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW,
    Frame,
)
from .link import Broken, Link, Silent

_HALF = WINDOW // 2
_OVERDUE = 3 * WINDOW
"""What an honest guest may still have to say after the deadline: what was on its way, and what it had kept."""
_SLICE = 0.01
"""How long one thread waits for another that reads, before it looks whether that one brought what it needs."""


class Closed(Exception):
    """Another thread or task closed the operation while this one waited. Never leaves atoll."""


Explain = Callable[[Broken], Awaitable[Exception]]


class Operation:
    """What runs on a link of its own until it ends.

    One thread or task may read while another writes. Anything that interrupts it, an error, a
    cancellation or Ctrl-C, closes the link, and the guest then ends what was running.

    Args:
        quiet: seconds without a frame after which the guest counts as not answering.
        deadline: the moment, of the monotonic clock, by which it must have ended.
        give_back: takes the link once the operation has ended properly.
        explain: turns a broken stream into the error that the caller sees.
    """

    def __init__(
        self,
        link: Link,
        give_back: Callable[[Link], None],
        explain: Explain,
        quiet: float | None,
        deadline: float | None = None,
    ) -> None:
        self.credit = WINDOW
        self.ended = False
        self._link = link
        self._give_back = give_back
        self._explain = explain
        self._quiet = quiet
        self.deadline = deadline
        self._channel = 0
        self._frames: deque[Frame] = deque()
        self._allowance = WINDOW
        self._owed = self._overdue = 0
        self._finished: set[int] = set()
        self._released = False
        self._closed = False

    async def start(self, request: bytes, data: bytes = b"", *, eof: bool = False) -> None:
        """Send OPEN, and in the same breath some input, which must fit into the window, and its end."""
        self._channel = channel = self._link.channel + 1
        self.credit -= len(data)
        tail = b"".join(
            frames.encode(channel, DATA, data[at : at + DATA_SIZE], STDIN) for at in range(0, len(data), DATA_SIZE)
        )
        if eof:
            tail += frames.encode(channel, EOF, b"", STDIN)
        await self._guarded(self._link.open(self, request, tail))

    def accept(self, frame: Frame) -> None:
        """Take a frame from the link, in the order of the stream."""
        kind = frame.kind
        if self.ended:
            return
        if kind in (DATA, EVENT):
            self._charge(frame)
        elif kind == CREDIT:
            self._more_credit(frame.credit())
            return
        elif kind == EOF:
            if frame.stream in self._finished or frame.stream not in (STDOUT, STDERR):
                raise ProtocolError("The guest ended a stream that it had not begun.")
            self._finished.add(frame.stream)
            return
        elif kind != END:
            raise ProtocolError(f"The guest sent a frame of kind {kind}, which only a client sends.")
        self.ended = kind == END
        self._frames.append(frame)

    def _charge(self, frame: Frame) -> None:
        """Headers count too: what waits here in tiny frames costs memory by their number, not by their content."""
        self._allowance -= HEADER.size + len(frame.payload)
        if self._allowance < 0:
            raise ProtocolError("The guest sent more than it was allowed to.")
        if not frame.payload:
            raise ProtocolError("The guest sent a frame that says nothing.")
        if frame.kind == DATA and frame.stream not in (STDOUT, STDERR, BULK):
            raise ProtocolError("The guest sent data that belongs to no stream.")

    def _more_credit(self, count: int) -> None:
        self.credit += count
        if not 0 < count <= WINDOW or self.credit > WINDOW:
            raise ProtocolError("The guest gave back credit that was never used.")

    async def next(self, timeout: float | None = None) -> Frame:
        """The next DATA, EVENT or END.

        Raises:
            TimedOut: nothing came within `timeout`; the operation goes on.
            Unresponsive, SandboxGone, Busy, ProtocolError: it is over.
        """
        if self._released:
            raise Closed
        if not self._frames:
            await self._guarded(self._until(self._readable, timeout))
        frame = self._frames.popleft()
        if frame.kind != END:
            self._owed += HEADER.size + len(frame.payload)
            if self._owed >= _HALF and not self.ended:
                await self._guarded(self._refill())
        return frame

    def be_patient(self) -> None:
        """From now on the guest may be silent for as long as it has nothing to say."""
        self._quiet = None

    async def stir(self, timeout: float | None = None) -> None:
        """Wait until `next` has something to give, or there is room to send. Raises as `next`."""
        if self._released:
            raise Closed
        await self._guarded(self._until(lambda: self._readable() or self._writable(), timeout))

    async def _refill(self) -> None:
        """Let the guest say more. Raises Silent for who never stops talking after the deadline."""
        owed, self._owed = self._owed, 0
        if self.deadline is not None and monotonic() > self.deadline:
            self._overdue += owed
            if self._overdue > _OVERDUE:
                raise Silent
        self._allowance += owed
        await self._link.send(frames.encode_credit(self._channel, owed))

    async def end(self) -> dict[str, Any]:
        """The answer of an operation that sends nothing else.

        Raises:
            AtollError: what the guest says went wrong, or what went wrong with it.
        """
        return self.answer(await self.next())

    def answer(self, frame: Frame) -> dict[str, Any]:
        """What an END says, after which the link is free for the next operation. Raises the error it reports."""
        if frame.kind != END:
            raise self.unexpected(frame)
        said = self.json(frame)
        ok, error = said.get("ok"), said.get("error")
        if isinstance(ok, dict) == isinstance(error, dict):
            self.close()
            raise ProtocolError("The guest ended an operation without saying how.")
        if not self._released:
            self._released = True
            self._give_back(self._link)
        if isinstance(error, dict):
            raise from_wire(error)
        return said["ok"]  # type: ignore[no-any-return]  # looked at above

    def json(self, frame: Frame) -> dict[str, Any]:
        try:
            return frame.json()
        except frames.BadFrame as error:
            self.close()
            raise ProtocolError(f"The guest broke the protocol: {error}.") from error

    def unexpected(self, frame: Frame) -> ProtocolError:
        self.close()
        return ProtocolError(f"The guest sent a frame of kind {frame.kind} where none belongs.")

    async def send(self, data: bytes | memoryview, timeout: float | None = None) -> None:
        """Send input, as fast as the guest takes it. What comes meanwhile is kept, within the window.

        After the end of the operation it does nothing: nobody is left to take it.
        """
        view = memoryview(data)
        while view and not self.ended:
            if self.credit <= 0:
                await self._guarded(self._until(self._writable, timeout))
                continue
            size = min(self.credit, DATA_SIZE, len(view))
            self.credit -= size
            await self._guarded(self._link.send(frames.encode(self._channel, DATA, view[:size], STDIN)))
            view = view[size:]

    async def eof(self) -> None:
        if not self.ended:
            await self._guarded(self._link.send(frames.encode(self._channel, EOF, b"", STDIN)))

    async def call(self, **request: Any) -> None:
        if not self.ended:
            await self._guarded(self._link.send(frames.encode_json(self._channel, CALL, request)))

    @property
    def closed(self) -> bool:
        """Whether it was given up before its END came."""
        return self._closed

    def waiting(self) -> bool:
        """Whether `next` has something to give at once."""
        return bool(self._frames) or self.ended

    def _readable(self) -> bool:
        return bool(self._frames)

    def _writable(self) -> bool:
        return self.credit > 0 or self.ended

    async def _until(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Read until it is so. A Silent that is the caller's own time limit becomes TimedOut."""
        limit, own = self._limit(timeout)
        late = False
        while not ready():
            left = None if limit is None else limit - monotonic()
            if left is not None and left <= 0:
                if late:
                    raise TimedOut(f"Nothing came within {timeout:g} s.") if own else Silent
                late = True
            if await self._link.reading.acquire(_SLICE):
                try:
                    if not ready():
                        await self._link.fill(left)
                except Silent:
                    if own:
                        raise TimedOut(f"Nothing came within {timeout:g} s.") from None
                    raise
                finally:
                    self._link.reading.release()

    def _limit(self, timeout: float | None) -> tuple[float | None, bool]:
        """When to stop waiting, and whether that is the caller's limit rather than the guest's."""
        now = monotonic()
        limit = self.deadline
        if self._quiet is not None and (limit is None or now + self._quiet < limit):
            limit = now + self._quiet
        if timeout is not None and (limit is None or now + timeout < limit):
            return now + timeout, True
        return limit, False

    async def _guarded(self, step: Awaitable[object]) -> None:
        try:
            await step
        except TimedOut:
            raise
        except Broken as error:
            if self._released:
                raise Closed from error
            self.close()
            raise await self._explain(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop it, unless it has ended. The guest ends what it ran for it, unless that is held."""
        if not self._released:
            self._closed = not self.ended
            self._released = self.ended = True
            self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
