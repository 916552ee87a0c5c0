"""What a run needs of the process that it runs in, and what its journal cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..models import Model, Usage, cost_of
from .events import Listener
from .limits import Price
from .toolspec import Tool


class Kit(NamedTuple):
    """`check` is the function that judges answers, where one does."""

    model: Model
    price: Callable[[], Price]
    tools: tuple[Tool, ...]
    listen: Listener
    check: Callable[[str], Any] | None = None


def price_of(model: str) -> Price:
    """Dollars a token, as far as they are known."""
    many = 1_000_000
    prompt, completion = cost_of(model, Usage(many, 0)), cost_of(model, Usage(0, many))
    return Price(None if prompt is None else prompt / many, None if completion is None else completion / many)
