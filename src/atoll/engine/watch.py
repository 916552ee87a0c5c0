"""What a keeper looks at now and then because the kernel does not hold it: a little at a time.

Hostile code can make any look long, and its keeper serves clients between two steps of one.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

# How long it looks at a stretch, in seconds, and for how many times as long as it has looked it then rests.
_STRETCH = 0.01
_REST = 4

T = TypeVar("T")
Steps = Generator[None, None, float]


def advance(steps: Generator[None, None, T]) -> T | None:
    """Go on with something for a moment, but for one step at least: what it gives, or None when there is more to do."""
    began = time.monotonic()
    try:
        next(steps)
        while time.monotonic() - began < _STRETCH:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    return None


class Watch:
    """Looks when it is due. What it looks at, in steps, is a subclass's `_steps`."""

    def __init__(self) -> None:
        self._next = 0.0
        self._steps_left: Steps | None = None
        self._spent = 0.0

    def due(self, now: float) -> float:
        """Seconds until it wants to look again; 0 in the middle of a look."""
        return 0.0 if self._steps_left else max(0.0, self._next - now)

    def look(self, now: float) -> None:
        """Begin to look, or go on; for a moment at most, but for one step at least. Nothing while it is not due."""
        if self.due(now) > 0:
            return
        if self._steps_left is None:
            self._steps_left, self._spent = self._steps(), 0.0
        began = time.monotonic()
        steps, self._steps_left = self._steps_left, None
        pause = advance(steps)
        now = time.monotonic()
        self._spent += now - began
        if pause is None:
            self._steps_left = steps
        else:
            self._next = now + max(pause, _REST * self._spent)

    def _steps(self) -> Steps:
        """One whole look; gives after how many seconds to look again at the earliest."""
        raise NotImplementedError
