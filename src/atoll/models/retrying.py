"""Ask again what deserves it: a bounded number of times, for a bounded time, with growing pauses that are never the
same for two who were refused at once."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from ..errors import InvalidInput, ModelError
from .contract import Reply
from .refusals import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WHOLE_SECONDS = 600.0
LONGEST_PAUSE = 8.0
LONGEST_WISH = 60.0
"""A server that asks to wait for longer than this is not waited for: the caller is told."""
MOST_FREE = 3


def pause(failed: int) -> float:
    """Seconds before the next try, when so many have failed."""
    longest = min(LONGEST_PAUSE, 0.5 * 2.0 ** (failed - 1))
    return longest * (0.5 + 0.5 * random.random())  # noqa: S311 - no secret


async def ask_until_answered(
    attempt: Callable[[float], Awaitable[Reply | Failure]],
    *,
    name: str,
    retries: int,
    timeout: float | None,
    on_retry: Callable[[str], None] | None,
) -> Reply:
    """The reply of the first attempt that has one. `attempt` is given the seconds that are left.

    Raises: ModelError of the last attempt; or that the time is over; InvalidInput for a timeout that is none.
    """
    import anyio

    whole = _check_seconds(timeout)
    end = time.monotonic() + whole
    sent = counted = free = 0
    why = ""
    with anyio.move_on_after(whole):
        while True:
            sent += 1
            outcome = await attempt(max(0.001, end - time.monotonic()))
            if isinstance(outcome, Reply):
                return outcome._replace(attempts=sent)
            error = outcome.error
            if outcome.free and free < MOST_FREE:
                free += 1
                wait = 0.0
            else:
                counted += 1
                wait = max(pause(counted), outcome.wait or 0.0)
                if not error.retryable or counted > retries:
                    raise _counted(error, sent)
                if outcome.wait is not None and outcome.wait > min(LONGEST_WISH, end - time.monotonic()):
                    raise _counted(error, sent, f"It asks to wait for {wait:.0f} s, which is too long.")
                if wait > end - time.monotonic():
                    raise _counted(error, sent, f"Of the {whole:g} s none are left to ask again.")
            why = error.message
            if on_retry is not None:
                on_retry(f"{why} Asking again in {wait:.1f} s ({counted} of {retries})." if wait else why)
            await anyio.sleep(wait)
    tail = f" Before that: {why}" if why else ""
    raise ModelError(f"{name} did not answer within {whole:g} s.{tail}", retryable=True)


def _check_seconds(value: object) -> float:
    if value is None:
        return WHOLE_SECONDS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidInput(f"timeout is a number of seconds above 0, not {value!r}.")
    return min(value, 1e6)


def _counted(error: ModelError, sent: int, more: str = "") -> ModelError:
    extra = " ".join(part for part in (more, f"It was sent {sent} times." if sent > 1 else "") if part)
    if not extra:
        return error
    return ModelError(f"{error.message} {extra}", hint=error.hint, status=error.status, retryable=error.retryable)
