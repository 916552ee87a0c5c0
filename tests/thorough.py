"""How much of what can be repeated is repeated: all of it with ATOLL_THOROUGH=1, else a fair sample.

A sample shifts from day to day, so that in time everything is tried, and is the same all day, so that a failure
comes back. Its number is told when a test fails; ATOLL_SEED=<number> brings a day back.
"""

from __future__ import annotations

import os
import time

from hypothesis import seed, settings

THOROUGH = os.environ.get("ATOLL_THOROUGH", "") not in ("", "0")
SEED = int(os.environ.get("ATOLL_SEED") or time.time() // 86400)
# For processes that a test starts without most of its environment.
ENVIRONMENT = {"ATOLL_THOROUGH": str(int(THOROUGH)), "ATOLL_SEED": str(SEED)}


def amount(everything, sample):
    """How often, or which, by whether everything is wanted."""
    return everything if THOROUGH else sample


def turns(items, turn=0):
    """All of them, or the one whose day it is; who asks with another `turn` is a day ahead of others."""
    return list(items) if THOROUGH else [items[(SEED + turn) % len(items)]]


def examples(everything, sample):
    """A decorator for a test of hypothesis: as many examples, of which a sample is another one each day."""
    if THOROUGH:
        return settings(max_examples=everything)
    return lambda test: seed(SEED)(settings(max_examples=sample)(test))


def is_sampled(number, every):
    """Whether a step whose number only grows is tried: the first ones are, then every so many."""
    return THOROUGH or number <= 2 or number % every == SEED % every


def some(items, every):
    """The first, the last, and of the others every so many."""
    items = list(items)
    last = len(items) - 1
    return [item for index, item in enumerate(items) if index in (0, last) or THOROUGH or index % every == SEED % every]
