"""The live output of a command, as `stream` gives it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

from ..types import Chunk, Completed, StreamName
from ..wire.frames import STDOUT, Frame
from .decode import TextChunks
from .operation import Closed
from .running import Running


class Chunks:
    """Frames as chunks of text; what is left of each stream follows at the end."""

    def __init__(self) -> None:
        self._texts: dict[StreamName, TextChunks] = {"stdout": TextChunks(), "stderr": TextChunks()}

    def feed(self, frame: Frame) -> Chunk:
        """The text may be empty."""
        name: StreamName = "stdout" if frame.stream == STDOUT else "stderr"
        return _chunk(name, *self._texts[name].feed_whole(frame.payload))

    def finish(self) -> deque[Chunk]:
        rest = (_chunk(name, *text.finish_whole()) for name, text in self._texts.items())
        return deque(chunk for chunk in rest if chunk.text)


class _RawChunk(Chunk):
    """One whose text does not tell its bytes. It unpacks as all do."""

    _data: bytes

    def __new__(cls, stream: StreamName, text: str, data: bytes = b"") -> Self:
        chunk = super().__new__(cls, stream, text)
        chunk._data = data
        return chunk

    @property
    def data(self) -> bytes:
        return self._data


def _chunk(name: StreamName, text: str, raw: bytes | None) -> Chunk:
    return Chunk(name, text) if raw is None else _RawChunk(name, text, raw)


class AsyncOutput:
    """Chunks of a command's output, as they come. The command starts when the first is asked for.

    Leaving it early, by `close`, a `with` block or an error, kills the command with all that it started.
    """

    def __init__(self, start: Callable[[], Awaitable[Running]]) -> None:
        self._start = start
        self._running: Running | None = None
        self._chunks = Chunks()
        self._left: deque[Chunk] = deque()
        self._result: Completed | None = None
        self._closed = False

    @property
    def result(self) -> Completed | None:
        """How the command ended, without its output; None until the last chunk has been taken."""
        return None if self._left else self._result

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        running = await self._open()
        while running is not None and self._result is None:
            try:
                item = await running.next()
            except Closed:
                break
            if isinstance(item, Completed):
                self._result, self._left = item, self._chunks.finish()
            elif (chunk := self._chunks.feed(item)).text:
                return chunk
        if self._left:
            return self._left.popleft()
        raise StopAsyncIteration

    def close(self) -> None:
        """Kill the command, if it still runs. The iteration ends."""
        self._closed = True
        if self._running is not None:
            self._running.operation.close()

    def __del__(self) -> None:
        self.close()

    async def _open(self) -> Running | None:
        if self._running is None and not self._closed:
            self._running = await self._start()
        return self._running
