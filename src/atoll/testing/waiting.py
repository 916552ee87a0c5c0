"""Waiting for something to become true, on a machine that may be slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which something that should have happened counts as not happening."""

HURRY = 10.0
"""Seconds after which a command that waits for us is killed; only a broken driver lets it wait."""

SPELL = 0.4
"""Seconds in which something that goes on shows a sign of life, many times over."""


def eventually(look: Callable[[], T], what: str) -> T:
    """The first true answer of `look`.

    Raises:
        AssertionError: there was none in time.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)


def goes_on(measure: Callable[[], object]) -> bool:
    """Whether a measure changes, sooner or later: a busy machine may let a process wait for long."""
    before = measure()
    return eventually(lambda: measure() != before, "it goes on")


def stands_still(measure: Callable[[], object]) -> bool:
    """Whether a measure stays the same for a spell; one that grows all the time does not."""
    before = measure()
    time.sleep(SPELL)
    return measure() == before
