"""How much of what can be repeated is repeated: a fixed part, or all with ATOLL_THOROUGH=1 (`make test-thorough`).

ATOLL_SEED is what chance is made from; it is 0 in `make test`, so that the same commit does the same each time, and a
new one in each thorough run, which prints it.
"""

from __future__ import annotations

import os

from hypothesis import seed, settings

THOROUGH = os.environ.get("ATOLL_THOROUGH", "") not in ("", "0")
SEED = int(os.environ.get("ATOLL_SEED") or 0)
# For processes that a test starts without most of its environment.
ENVIRONMENT = {"ATOLL_THOROUGH": str(int(THOROUGH)), "ATOLL_SEED": str(SEED)}


def amount(everything, part):
    """How often, or which, by whether everything is wanted."""
    return everything if THOROUGH else part


def turns(items, turn=0):
    """All of them, or one; who asks with another `turn` gets another one."""
    return list(items) if THOROUGH else [items[turn % len(items)]]


def examples(everything, part):
    """A decorator for a test of hypothesis: so many examples."""
    if THOROUGH:
        return lambda test: seed(SEED)(settings(max_examples=everything)(test))
    return settings(max_examples=part)


def is_chosen(number, every):
    """Whether a step whose number only grows is tried: the first ones are, then every so many."""
    return THOROUGH or number <= 2 or number % every == 0


def some(items, every):
    """The first, the last, and of the others every so many."""
    items = list(items)
    last = len(items) - 1
    return [item for index, item in enumerate(items) if index == last or THOROUGH or index % every == 0]
