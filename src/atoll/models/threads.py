"""Blocking calls beside an event loop of asyncio or trio, in threads that no process waits for at its end.

A host name that is not resolved, or LiteLLM, cannot be ended from outside, and must not keep a cancelled program alive:
anyio's own threads would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

MOST_AT_ONCE = 64
THREAD = "atoll model"
_T = TypeVar("_T")
_limiters: Any = None


async def in_thread(work: Callable[[], _T], cancel: Callable[[], None]) -> _T:
    """The result of `work`, done in a thread; at most 64 at once in one event loop.

    When the awaiting task is cancelled, `cancel` is called, which should make the work end, and nobody waits for it.

    Raises: what the work raises.
    """
    import anyio

    async with _limiter():
        done = anyio.Event()
        result: list[_T] = []
        failure: list[BaseException] = []
        wake = _waker(done.set)

        def run() -> None:
            try:
                result.append(work())
            except BaseException as error:  # noqa: BLE001 - the awaiting task raises it
                failure.append(error)
            # The loop may have ended in the meantime.
            with suppress(RuntimeError):
                wake()

        threading.Thread(target=run, name=THREAD, daemon=True).start()
        try:
            await done.wait()
        except BaseException:
            cancel()
            raise
        if failure:
            raise failure.pop()
        return result.pop()


def _limiter() -> Any:
    global _limiters  # noqa: PLW0603 - a cache
    import anyio
    import anyio.lowlevel

    if _limiters is None:
        _limiters = anyio.lowlevel.RunVar("atoll.models")
    limiter = _limiters.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MOST_AT_ONCE)
        _limiters.set(limiter)
    return limiter


def _waker(call: Callable[[], object]) -> Callable[[], object]:
    """A function that any thread may call, to have another called in the event loop that runs here."""
    import sys

    if "trio" in sys.modules:
        import trio

        with suppress(RuntimeError):  # this is asyncio
            token = trio.lowlevel.current_trio_token()
            return lambda: token.run_sync_soon(call)
    import asyncio

    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
