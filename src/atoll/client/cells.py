"""Cells: code that runs in a context, which keeps its state from one to the next."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Self

from ..errors import InvalidInput, ProtocolError
from ..policy.sizes import parse_size
from ..policy.text import kind_of
from ..types import Chunk, CodeError, Execution, Result
from ..wire.frames import BULK, DATA, END, Frame
from . import answers
from .command import MAX_OUTPUT, add_surroundings
from .contextqueue import Turn
from .contexts import MAIN, context_name, context_text
from .links import Links
from .operation import Closed
from .output import Chunks
from .running import Audience, Gathered, Listener, check_listener, tell
from .tools import Answering, Tools

ResultCallback = Callable[[Result], Any]
ErrorCallback = Callable[[CodeError], Any]
InputCallback = Callable[[str], Any]


class Listeners(NamedTuple):
    """Who hears of a cell while it runs, and who answers it. Each may be a coroutine function."""

    on_stdout: Listener | None = None
    on_stderr: Listener | None = None
    on_result: ResultCallback | None = None
    on_error: ErrorCallback | None = None
    on_input: InputCallback | None = None
    tools: Tools | None = None


# Without the last, `tools`.
_CALLBACKS = Listeners._fields[:-1]


class Hearing:
    """Takes what comes of a cell, within its limits."""

    _gathered: Gathered | None = None
    _audience: Audience | None = None
    answering: Answering | None = None
    _bulk: bytes | bytearray = b""
    _cut = False

    def __init__(self, links: Links, limit: int, listeners: Listeners) -> None:
        for name, callback in zip(_CALLBACKS, listeners, strict=False):
            if callback is not None:
                check_listener(links.io, name, callback)
        self._listeners = listeners
        self._room = self._limit = limit
        self._results: list[Result] = []
        if listeners.on_stdout or listeners.on_stderr:
            self._audience = Audience(listeners.on_stdout, listeners.on_stderr)
        if listeners.on_input is not None or listeners.tools is not None:
            self.answering = Answering(links.io, listeners.tools, listeners.on_input)

    async def take(self, turn: Turn, frame: Frame) -> Result | Frame | None:
        """A result, or output as far as it is within the limit."""
        if frame.kind != DATA:
            return await self._event(turn, turn.operation.json(frame), len(frame.payload))
        if frame.stream == BULK:
            self._keep(frame.payload)
            return None
        if self._gathered is None:
            self._gathered = Gathered(self._limit)
        kept = self._gathered.take(frame)
        if kept and self._audience:
            await self._audience.hear(kept)
        return kept

    def _keep(self, part: bytes) -> None:
        """A part of something that is too long for one event."""
        if not self._bulk:
            self._bulk = bytearray()
        self._bulk += part
        if len(self._bulk) > self._limit + (1 << 21):
            raise ProtocolError("The guest sent a result that is longer than it may be.")

    async def _event(self, turn: Turn, event: dict[str, Any], size: int) -> Result | None:
        if "bulk" in event and self._bulk:
            size = answers.integer(event, "bulk")
            if size != len(self._bulk):
                raise ProtocolError("The guest announced another size than it sent.")
            whole = turn.operation.json(Frame(0, 0, 0, bytes(self._bulk)))
            self._bulk = b""
            return await self._event(turn, whole, size)
        if "result" in event:
            return await self._result(event, size)
        if "ask" in event and self.answering is not None:
            number = answers.integer(event, "ask")
            answer = await self.answering.answer(event.get("question"), turn.left)
            await turn.call(answer=number, **answer)
        return None

    async def _result(self, event: dict[str, Any], size: int) -> Result | None:
        result = answers.result(event)
        if self._room < 0:
            self._cut = True
            return None
        self._room -= size  # below 0 at most by what one result is larger than the form that was held to the limit
        self._results.append(result)
        if self._listeners.on_result:
            await tell(self._listeners.on_result, result)
        return result

    async def finish(self, answer: answers.Answer) -> Execution:
        if self._audience:
            await self._audience.finish()
        gathered = self._gathered
        error = answers.code_error(answer)
        if error is not None and self._listeners.on_error:
            await tell(self._listeners.on_error, error)
        count = answers.integer(answer, "count")
        if count < 0:
            raise ProtocolError(f"The guest counts {count} cells.")
        return Execution(
            results=tuple(self._results),
            stdout=gathered.stdout() if gathered else "",
            stderr=gathered.stderr() if gathered else "",
            error=error,
            count=count,
            duration=answers.number(answer, "duration"),
            timed_out=answers.flag(answer, "timed_out"),
            truncated=answers.flag(answer, "truncated") or (gathered is not None and gathered.cut) or self._cut,
            state_lost=answers.flag(answer, "state_lost"),
            exit_code=None if answer.get("exit_code") is None else answers.integer(answer, "exit_code"),
        )


def code_request(
    code: object,
    context: object,
    language: object,
    *,
    env: Mapping[str, str] | None,
    workdir: str | os.PathLike[str] | None,
    timeout: float | None,
    max_output: int,
) -> dict[str, Any]:
    """The operation `code`. A language without a context means the context of its name. Raises InvalidInput."""
    if not isinstance(code, str):
        raise InvalidInput(f"code is {kind_of(code)}; give text.")
    limit = max_output if max_output == MAX_OUTPUT else parse_size(max_output, "max_output")
    request: dict[str, Any] = {"op": "code", "code": code, "timeout": timeout, "limit": limit}
    if language is not None:
        request["language"] = context_text(language, "language")
    if context is not None:
        request["context"] = context_name(context)
    else:
        request["context"] = MAIN if language is None else _context_of(request["language"])
    if env is not None or workdir is not None:
        add_surroundings(request, env, workdir)
    return request


def _context_of(language: str) -> str:
    """The context that is meant by a language alone, whichever of its names was used."""
    from ..guest import toolchains

    known = toolchains.find(language)
    if known is None:
        return language
    return MAIN if known.kind == toolchains.PYTHON else known.name


async def begin(links: Links, request: dict[str, Any], answering: Answering | None) -> Turn:
    """Have a cell run. `request` is that of the operation `code`, with `context`, `timeout` and `limit`."""
    if answering is not None:
        answering.describe(request)
    return await links.contexts.begin(request)


async def run_code(links: Links, request: dict[str, Any], listeners: Listeners) -> Execution:
    """Run a cell to its end."""
    hearing = Hearing(links, request["limit"], listeners)
    async with await begin(links, request, hearing.answering) as turn:
        while (frame := await turn.next()).kind != END:
            await hearing.take(turn, frame)
        answer = turn.operation.answer(frame)
    return await hearing.finish(answer)


class AsyncCell:
    """What a cell says and shows, as it comes: `Chunk`s of output and `Result`s. It runs when the first is asked for.

    Leaving it early, by `close`, a `with` block or an error, stops the cell with all that it has started.
    """

    def __init__(self, start: Callable[[Answering | None], Awaitable[Turn]], hearing: Hearing) -> None:
        self._start = start
        self._hearing = hearing
        self._turn: Turn | None = None
        self._chunks = Chunks()
        self._left: deque[Chunk] = deque()
        self._execution: Execution | None = None
        self._closed = False

    @property
    def execution(self) -> Execution | None:
        """How the cell ended, as `run_code` gives it; None until the last piece has been taken."""
        return None if self._left else self._execution

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk | Result:
        while self._execution is None and not self._closed:
            try:
                piece = await self._next()
            except Closed:
                break
            except BaseException:
                self.close()
                raise
            if piece is not None:
                return piece
        if self._left:
            return self._left.popleft()
        raise StopAsyncIteration

    async def _next(self) -> Chunk | Result | None:
        if self._turn is None:
            self._turn = await self._start(self._hearing.answering)
        frame = await self._turn.next()
        if frame.kind == END:
            self._execution = await self._hearing.finish(self._turn.operation.answer(frame))
            self._left = self._chunks.finish()
            self._turn.leave()
            return None
        taken = await self._hearing.take(self._turn, frame)
        if isinstance(taken, Frame):
            chunk = self._chunks.feed(taken)
            return chunk if chunk.text else None
        return taken

    def close(self) -> None:
        """Stop the cell, if it still runs. The iteration ends."""
        self._closed = True
        if self._turn is not None:
            self._turn.leave()

    def __del__(self) -> None:
        self.close()
