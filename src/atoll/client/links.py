"""The streams of one sandbox to its guest, and what a broken one means."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ..driver import Driver
from ..errors import AtollError, Busy, InvalidInput, ProtocolError, SandboxGone, Unresponsive
from ..policy.offers import check_operation
from ..types import Completed, Handle, Info, Status
from ..wire.frames import MAX_OPEN, MAX_PAYLOAD
from .link import Broken, Ended, Link
from .operation import Operation

if TYPE_CHECKING:
    from .contextqueue import ContextQueue

QUIET = 30.0
"""Seconds without a word after which a guest counts as not answering."""

PATIENT = 600.0
"""The same for what may take long without a word, such as copying a tree."""

MAX_IDLE = 8
_SETTLE = 10.0
"""A guest may die long before its keeper gets to know, on a busy machine."""


_encode = json.JSONEncoder(separators=(",", ":")).encode


class Seat(Protocol):
    """The sandbox that the links lead to. One that nobody has asked for by a spec has no `info`."""

    driver: Driver
    handle: Handle

    @property
    def info(self) -> Info | None:
        """What was last known of it."""

    async def check_usable(self, *, afresh: bool = False) -> None:
        """Raises SandboxGone or Busy when it is known not to answer; `afresh` asks the driver."""

    async def judge(self) -> Status:
        """How it stands now."""

    def gone(self) -> SandboxGone:
        """The error that says that it has ended, and why."""


class Links:
    """Idle links, handed to one operation at a time; more are opened on demand.

    Safe for threads and tasks without a lock, since taking from a list and adding to it are single steps.
    A forked child drops what it inherited: the parent still speaks on it.
    """

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._idle: list[Link] = []
        self._contexts: ContextQueue | None = None
        self.io = seat.driver.io

    @property
    def sandbox(self) -> str:
        """The id of the sandbox that they lead to."""
        return self._seat.handle.id

    async def open(
        self,
        request: dict[str, Any],
        *,
        quiet: float | None = QUIET,
        deadline: float | None = None,
        data: bytes = b"",
        eof: bool = False,
    ) -> Operation:
        """Start an operation; `data` is input that goes along, at most a window of it, and `eof` its end.

        Raises:
            InvalidInput: the request does not fit into a frame.
            SandboxGone, Busy: it cannot answer.
        """
        message = _encode(request).encode("ascii")
        # A command may have all the arguments that its kernel takes; what goes on to a context must fit there.
        if len(message) > (MAX_OPEN if request["op"] == "exec" else MAX_PAYLOAD):
            raise InvalidInput(
                f"The request takes {len(message)} bytes; at most {MAX_PAYLOAD} fit. Pass large things with "
                "files.write, variables.set, or the stdin of a command."
            )
        driver = self._seat.driver
        check_operation(driver.name, await driver.offers(), request)
        operation = Operation(await self._take(), self._give_back, self._explain, quiet, deadline)
        await operation.start(message, data, eof=eof)
        return operation

    @property
    def contexts(self) -> ContextQueue:
        """The way to the sandbox's contexts."""
        if self._contexts is None:
            from .contextqueue import ContextQueue

            self._contexts = ContextQueue(self)
        return self._contexts

    async def ask(self, op: str, *, quiet: float = QUIET, **arguments: Any) -> dict[str, Any]:
        """The answer of an operation that only answers."""
        async with await self.open({"op": op, **arguments}, quiet=quiet) as operation:
            return await operation.end()

    async def hint(self, request: dict[str, Any]) -> Callable[[Completed, str], str | None]:
        """What says why a command that was asked for so has failed, from how it ended and the end of its output."""

        offers = await self._seat.driver.offers()

        def look(completed: Completed, tail: str) -> str | None:
            from .reasons import hint_for

            info = self._seat.info
            return None if info is None else hint_for(offers, info.spec, request, completed, tail)

        return look

    def drop(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()

    async def _take(self) -> Link:
        await self._seat.check_usable()
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not link.stale():
                return link
            link.close()
        try:
            return Link(self.io, await self._seat.driver.open_guest(self._seat.handle))
        except SandboxGone:
            await self._seat.check_usable(afresh=True)
            raise

    def _give_back(self, link: Link) -> None:
        link.rest()
        if len(self._idle) < MAX_IDLE:
            self._idle.append(link)
        else:
            link.close()

    async def _explain(self, broken: Broken) -> AtollError:
        """Why a stream broke. An honest guest ends one only when it dies, so its end gets time to show."""
        ended = isinstance(broken, Ended)
        until = monotonic() + (_SETTLE if ended else 0.0)
        pause = 0.005
        while (status := await self._seat.judge()) == "running" and monotonic() < until:
            await self.io.sleep(pause)
            pause = min(pause * 2, 0.2)
        if status == "gone":
            return self._seat.gone()
        if status in ("paused", "stopped"):
            return self._left_undone(status)
        if ended:
            return ProtocolError("The guest ended the stream in the middle of an operation.")
        return Unresponsive(
            f"The guest of {self._seat.handle.id} does not answer.",
            hint="Try again, or destroy the sandbox.",
        )

    def _left_undone(self, status: Status) -> Busy:
        return Busy(
            f"The sandbox {self._seat.handle.id} was {status} before this was done.", hint="Call resume() first."
        )
