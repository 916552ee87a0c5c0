"""A command under way: its input goes in as its output comes out."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import InvalidInput, ProtocolError, TimedOut, command_failed
from ..io import IO, BlockingIO
from ..policy.text import shown
from ..types import Completed
from ..wire.frames import DATA, DATA_SIZE, END, EVENT, STDOUT, Frame
from . import answers
from .command import MAX_OUTPUT, line_of
from .decode import REPLACEMENT, TextChunks, text_of
from .lines import ByBytes, ByLine, Lines
from .links import Links
from .operation import Operation

if TYPE_CHECKING:
    from .feed import Feed, Input

GRACE = 15.0
"""What a guest gets, beyond a command's timeout, to kill it and say so."""

_CO_COROUTINE = 0x80

TAIL = 4096
"""Bytes of the end of its output in which the reason of a failure is looked for."""

Callback = Callable[[str], Any]
Listener: TypeAlias = Callback | ByLine | ByBytes


Hint: TypeAlias = Callable[[Completed, str], str | None]
"""Why a command failed, from how it ended and the end of what it said."""


class Running:
    """Raw output of an exec. `pid` is there once the guest has told it. `hint` says what becomes the result's."""

    def __init__(self, operation: Operation, feed: Feed | None = None, hint: Hint | None = None) -> None:
        self.operation = operation
        self.pid: int | None = None
        self._feed = feed
        self._early: Frame | Completed | None = None
        self._hint = hint
        self._tail = b""

    async def next(self, timeout: float | None = None) -> Frame | Completed:
        """The next DATA, or at last how it ended, without the output. Raises as `Operation.next` and `answer`."""
        if self._early is not None:
            early, self._early = self._early, None
            return early
        try:
            while True:
                if self._feed is not None:
                    await self._send_input(self._feed)
                if self._feed is not None:
                    # A command may read all of its input before it says a word.
                    await self.operation.stir(timeout)
                    if not self.operation.waiting():
                        continue
                frame = await self.operation.next(timeout)
                if frame.kind == DATA:
                    return self.heard(frame)
                if frame.kind == END:
                    return self.explained(_completed(self.operation.answer(frame)))
                self._learn_pid(frame)
        except TimedOut:
            raise
        except BaseException:
            self.operation.close()
            raise

    async def started(self) -> int:
        """Wait for the pid of a command that has just been asked for; 0 when it could not be started.

        Raises:
            AtollError: why the guest refused it.
        """
        frame = await self.operation.next()
        self.operation.be_patient()
        if frame.kind == EVENT:
            return self._learn_pid(frame)
        if frame.kind == DATA:
            self._early = self.heard(frame)
        else:
            self._early = self.explained(_completed(self.operation.answer(frame)))
        self.pid = 0
        return 0

    def heard(self, frame: Frame) -> Frame:
        """Output, of which the end is remembered."""
        self._tail = (self._tail + frame.payload[-TAIL:])[-TAIL:]
        return frame

    def explained(self, ended: Completed) -> Completed:
        """How it ended, with a hint where it failed and more is known."""
        if ended.success or self._hint is None:
            return ended
        return ended._replace(hint=self._hint(ended, text_of(self._tail)))

    def _learn_pid(self, frame: Frame) -> int:
        if frame.kind != EVENT or self.pid is not None:
            raise self.operation.unexpected(frame)
        pid = answers.integer(self.operation.json(frame), "pid")
        if pid < 0:
            self.operation.close()
            raise ProtocolError(f"The guest started a process with the pid {pid}.")
        self.pid = pid
        return pid

    async def _send_input(self, feed: Feed) -> None:
        """Send what the window takes, unless there is output to look at first."""
        operation = self.operation
        while operation.credit > 0 and not operation.waiting():
            piece = await feed.read(min(operation.credit, DATA_SIZE))
            if not piece:
                self._feed = None
                await operation.eof()
                return
            await operation.send(piece)


class Gathered:
    """Output that is kept, up to a limit for both streams together."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._room = limit
        self._kept = (bytearray(), bytearray())  # no lists of pieces: a hostile guest could send single bytes
        self.cut = False

    def take(self, frame: Frame) -> Frame | None:
        """As much of it as is kept; None for nothing."""
        payload = frame.payload
        if len(payload) > self._room:
            self.cut = True
            payload = payload[: self._room]
            if not payload:
                return None
            frame = frame._replace(payload=payload)
        self._room -= len(payload)
        self._kept[frame.stream != STDOUT].extend(payload)
        return frame

    def stdout(self) -> str:
        return text_of(self._kept[0])

    def stderr(self) -> str:
        return text_of(self._kept[1])

    def complete(self, ended: Completed) -> Completed:
        return with_output(ended, *self._kept, cut=self.cut)


def with_output(ended: Completed, stdout: bytearray, stderr: bytearray, *, cut: bool) -> Completed:
    """How a command ended, with what it has written."""
    texts = text_of(stdout), text_of(stderr)
    raw = (bytes(stdout), bytes(stderr)) if any(REPLACEMENT in text for text in texts) else None
    return ended._replace(stdout=texts[0], stderr=texts[1], truncated=ended.truncated or cut, raw=raw)


class Told:
    """A caller's function that hears one stream as text. It may be a coroutine function."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._chunks = TextChunks()

    async def hear(self, payload: bytes) -> None:
        await self._say(self._chunks.feed(payload))

    async def finish(self) -> None:
        await self._say(self._chunks.finish())

    async def _say(self, text: str) -> None:
        if text:
            await tell(self._callback, text)


class ToldLines:
    """The same, by the line."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._lines = Lines()

    async def hear(self, payload: bytes) -> None:
        await self._say(self._lines.feed(payload))

    async def finish(self) -> None:
        await self._say(self._lines.finish())

    async def _say(self, lines: list[str]) -> None:
        for line in lines:
            await tell(self._callback, line)


class ToldBytes:
    """The same, as bytes."""

    def __init__(self, callback: Callable[[bytes], Any]) -> None:
        self._callback = callback

    async def hear(self, payload: bytes) -> None:
        await tell(self._callback, payload)

    async def finish(self) -> None:
        """All was told as it came."""


class Audience:
    """Who hears the output of a command or a cell while it comes."""

    def __init__(self, on_stdout: Listener | None, on_stderr: Listener | None) -> None:
        self._told = tuple(map(_told, (on_stdout, on_stderr)))

    async def hear(self, frame: Frame) -> None:
        told = self._told[frame.stream != STDOUT]
        if told:
            await told.hear(frame.payload)

    async def finish(self) -> None:
        for told in self._told:
            if told:
                await told.finish()


def _told(listener: Listener | None) -> Told | ToldLines | ToldBytes | None:
    if isinstance(listener, ByLine):
        return ToldLines(listener.callback)
    if isinstance(listener, ByBytes):
        return ToldBytes(listener.callback)
    return None if listener is None else Told(listener)


def check_listener(io: IO, name: str, callback: object) -> None:
    """Whether it can be called, and awaited if it has to be. Raises InvalidInput."""
    if isinstance(callback, ByLine | ByBytes):
        callback = callback.callback
    if callback is None:
        return
    if not callable(callback):
        raise InvalidInput(f"{name} is {shown(callback)}; give a function.")
    if isinstance(io, BlockingIO) and is_coroutine_function(callback):
        raise InvalidInput(f"{name} is a coroutine function; give a plain one, or use AsyncSandbox.")


def is_coroutine_function(function: object) -> bool:
    """As `inspect` says it, whose import takes longer than a cell."""
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & _CO_COROUTINE)


async def tell(callback: Callable[[Any], Any], value: object) -> None:
    outcome = callback(value)
    if hasattr(outcome, "__await__"):
        await outcome


def feed_of(io: IO, source: Input | None) -> Feed | None:
    """Raises InvalidInput for what cannot be input."""
    if source is None:
        return None
    from .feed import Feed

    return Feed(io, source)


async def launch(links: Links, request: dict[str, Any], feed: Feed | None) -> Running:
    """Start a command that ends with its link; small input goes along with the request."""
    timeout = request["timeout"]
    deadline = None if timeout is None else monotonic() + timeout + GRACE
    at_once = feed.at_once() if feed else None
    if at_once is None:
        return Running(await links.open(request, quiet=None, deadline=deadline), feed, await links.hint(request))
    operation = await links.open(request, quiet=None, deadline=deadline, data=at_once, eof=True)
    return Running(operation, None, await links.hint(request))


async def run(
    links: Links,
    request: dict[str, Any],
    feed: Feed | None,
    *,
    check: bool,
    on_stdout: Listener | None,
    on_stderr: Listener | None,
) -> Completed:
    """Run a command to its end."""
    running = await launch(links, request, feed)
    gathered = Gathered(request["limit"])
    audience = Audience(on_stdout, on_stderr) if on_stdout or on_stderr else None
    async with running.operation:
        while isinstance(item := await running.next(), Frame):
            gathered.take(item)
            if audience:
                await audience.hear(item)
    if audience:
        await audience.finish()
    completed = gathered.complete(item)
    if check and not completed.success:
        raise command_failed(completed, line_of(request["argv"]), request["timeout"])
    return completed


def _completed(answer: answers.Answer) -> Completed:
    exit_code = answers.integer(answer, "exit_code")
    if not 0 <= exit_code <= 255:
        raise ProtocolError(f"The guest says that a command ended with {exit_code}.")
    return Completed(
        exit_code,
        "",
        "",
        answers.number(answer, "duration"),
        answers.flag(answer, "timed_out"),
        answers.flag(answer, "truncated"),
        answer.get("out_of_memory") is True,  # which the guest of an older atoll does not say
    )
