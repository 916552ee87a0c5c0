"""What makes a sandbox: `await AsyncSandbox.create()`, or `async with AsyncSandbox.create() as sandbox`."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar


class Entered(Protocol):
    """What can be the subject of `async with`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


T = TypeVar("T", bound=Entered)


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that is also an `async with` block around what it gives.

    It is a coroutine in all else, so that task groups take it, and one that is never awaited warns.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._made: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> T:
        self._made = await self._coroutine
        return await self._made.__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        if self._made is not None:
            await self._made.__aexit__(*exc)

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        return self._coroutine.throw(kind if value is None else value)

    def close(self) -> None:
        self._coroutine.close()
