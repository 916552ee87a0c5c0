"""A run, told as it happens."""

from __future__ import annotations

import math
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from .events import Event
from .results import Result

if TYPE_CHECKING:
    from .agent import AsyncAgent
    from .sync import Agent


class AsyncRunning:
    """The events of a run, inside `async with`. `trajectory_id` is known from the start, `result` at the end."""

    def __init__(self, agent: AsyncAgent, id: str) -> None:
        self.trajectory_id = id
        self.result: Result | None = None
        self._agent = agent
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        import anyio

        # Without a bound: a run does not wait for who listens to it, and tells a few hundred bytes a step.
        send, self._events = anyio.create_memory_object_stream[Event](math.inf)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()

        def tell(event: Event) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more
                send.send_nowait(event)

        async def work() -> None:
            with send:
                try:
                    self.result = await self._agent.follow(self.trajectory_id, tell)
                except Exception as error:  # noqa: BLE001  # raised where the events are read
                    self._failure = error

        self._group.start_soon(work)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._group.cancel_scope.cancel()
        self._events.close()
        await self._group.__aexit__(None, None, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        import anyio

        try:
            return await self._events.receive()
        except anyio.EndOfStream:
            if self._failure is not None:
                raise self._failure from None
            raise StopAsyncIteration from None


class Running:
    """The events of a run: iterate over it. `trajectory_id` is known from the start, `result` at the end.

    Left early, or closed, it interrupts the run, which can then be resumed.
    """

    def __init__(self, agent: Agent, id: str) -> None:
        self.trajectory_id = id
        self.result: Result | None = None
        self._failure: BaseException | None = None
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._task = agent.begin_task(id, self._events.put)
        threading.Thread(target=self._wait, name="atoll-agent-stream", daemon=True).start()

    def _wait(self) -> None:
        try:
            self.result = self._task.wait()
        except BaseException as error:  # noqa: BLE001  # raised where the events are read
            self._failure = error
        self._events.put(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self._events.get()
        if event is not None:
            return event
        self._events.put(None)
        if self._failure is not None:
            raise self._failure
        raise StopIteration

    def close(self) -> None:
        self._task.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
