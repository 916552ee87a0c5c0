"""Changes under a path, as they happen."""

from __future__ import annotations

from collections import deque
from typing import Self

from ..errors import ProtocolError
from ..types import FileEvent
from ..wire.frames import EVENT
from . import answers
from .operation import Closed, Operation


class AsyncWatch:
    """Events in their order. Every change made after it was got is seen; "overflow" says that some were lost.

    Leaving it, by `close`, a `with` block or an error, ends it.
    """

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._events: deque[FileEvent] = deque()

    async def ready(self) -> Self:
        """Wait until the guest watches."""
        try:
            frame = await self._operation.next()
            self._operation.be_patient()
            if frame.kind != EVENT:
                self._operation.answer(frame)
                raise ProtocolError("The guest ended a watch that nobody closed.")
            answers.flag(self._operation.json(frame), "ready")
        except BaseException:
            self._operation.close()
            raise
        return self

    async def read(self, timeout: float | None = None) -> FileEvent | None:
        """The next event, or None after `close`.

        Raises:
            TimedOut: nothing happened in time; the watch goes on.
        """
        while not self._events:
            try:
                frame = await self._operation.next(timeout)
            except Closed:
                return None
            if frame.kind != EVENT:
                self._operation.answer(frame)
                raise ProtocolError("The guest ended a watch that nobody closed.")
            self._take(answers.items(self._operation.json(frame), "events"))
        return self._events.popleft()

    def _take(self, events: list[answers.Answer]) -> None:
        try:
            self._events.extend(map(answers.file_event, events))
        except ProtocolError:
            self.close()
            raise

    def close(self) -> None:
        """Stop watching. The iteration ends."""
        self._operation.close()

    def __del__(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FileEvent:
        event = await self.read()
        if event is None:
            raise StopAsyncIteration
        return event
