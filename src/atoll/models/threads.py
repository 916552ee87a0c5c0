"""Blocking work beside an event loop of asyncio or trio.

The threads are of the kind that no process waits for: a host name that is not resolved, or LiteLLM, cannot be ended
from outside, and must not keep a cancelled program alive. They are used again, since a new one takes as long to start
as the rest of a call.
"""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

MOST_AT_ONCE = 64
IDLE_SECONDS = 10.0
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

        def finish() -> None:
            # The loop may have ended in the meantime.
            with suppress(RuntimeError):
                wake()

        _give(run, finish)
        try:
            await done.wait()
        except BaseException:
            cancel()
            raise
        if failure:
            raise failure.pop()
        return result.pop()


class Worker:
    """A thread that does one thing after another, and ends when nobody has had any for a while."""

    idle: list[Worker] = []  # noqa: RUF012 - of all of them
    lock = threading.Lock()
    started = 0
    ended = 0

    def __init__(self) -> None:
        with self.lock:
            Worker.started += 1
        self.jobs: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]]] = queue.SimpleQueue()
        # A Thread would wait here until it runs, and with it the event loop.
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            try:
                job, finish = self.jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self.lock:
                    if self not in self.idle:  # somebody has just taken it
                        continue
                    self.idle.remove(self)
                    Worker.ended += 1
                    return
            job()
            del job
            with self.lock:
                self.idle.append(self)
            # After that, so that who is woken finds it idle.
            finish()
            del finish


def _give(job: Callable[[], None], finish: Callable[[], None]) -> None:
    with Worker.lock:
        worker = Worker.idle.pop() if Worker.idle else None
    (worker or Worker()).jobs.put((job, finish))


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


def _waker(call: Callable[[], object]) -> Callable[[], None]:
    """A function that any thread may call, to have another called in the event loop that runs here."""
    import sys

    if "trio" in sys.modules:
        import trio

        with suppress(RuntimeError):  # this is asyncio
            token = trio.lowlevel.current_trio_token()
            return lambda: token.run_sync_soon(call)
    import asyncio

    loop = asyncio.get_running_loop()
    return lambda: _soon(loop, call)


def _soon(loop: Any, call: Callable[[], object]) -> None:
    loop.call_soon_threadsafe(call)
