"""What an agent tells while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from .limits import Spent

EventKind = Literal["began", "ended", "retry", "replayed", "done"]


class Event(NamedTuple):
    """Something that happened in a run, or in one that is a part of it.

    "began" and "ended" are of a step: `number`, `key`, `step` (its kind), `name`, `request`, and for "ended" its
    `outcome`, are as the journal has them. "retry" says in `text` why a model is asked again, "replayed" how many steps
    a run has behind it that goes on, "done" how it ended. `depth` is 0 for the run itself.
    """

    kind: EventKind
    run: str
    depth: int
    spent: Spent
    number: int = 0
    key: str = ""
    step: str = ""
    name: str = ""
    request: Mapping[str, Any] = {}
    outcome: Mapping[str, Any] = {}
    text: str = ""
    parent: str | None = None


Listener = Callable[[Event], None]
