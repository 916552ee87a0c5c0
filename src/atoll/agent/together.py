"""Several things at once, in order of asking: what one of them raises is told as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Sequence[Callable[[], Awaitable[T]]], *, to_the_end: bool = False) -> list[T]:
    """What each of them gives, in their order. Raises what the first that fails raises, and no group of errors.

    One that fails ends the others, unless they are to go `to_the_end`.
    """
    if len(calls) == 1:
        return [await calls[0]()]
    import anyio

    given: list[Any] = [None] * len(calls)
    failures: list[Exception] = []

    async def one(index: int) -> None:
        try:
            given[index] = await calls[index]()
        except Exception as error:  # noqa: BLE001  # raised again below, bare
            failures.append(error)
            if not to_the_end:
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index in range(len(calls)):
            group.start_soon(one, index)
    if failures:
        raise failures[0]
    return given
