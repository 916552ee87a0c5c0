"""Which runs the servers of this user have begun, and how many of those are under way.

The ids are in a file, so that neither another server nor a restart forgets them. What has become of each, the journal
of agents knows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from ..agent import journal
from ..errors import InvalidInput, StoreError, TrajectoryNotFound
from ..home import private, state_dir
from .locks import exclusive
from .settings import MAX_AGENTS

_FILE = "mcp-agents"
_STARTING = 60.0
"""Seconds for the process of a run to take it. One that nobody has taken by then has no process."""


def begin(space: str, start: Callable[[], str]) -> str:
    """The id of the run that `start` begins, if there are not too many.

    Raises:
        InvalidInput: there are. Of the ids only those of this space are told: with an id a run can be ended.
        StoreError: it cannot be found out.
    """
    with exclusive(_FILE):
        under_way = {id: place for id, place in _read().items() if _is_under_way(id)}
        if len(under_way) >= MAX_AGENTS:
            own = [id for id, place in under_way.items() if place == space]
            ids = f": {', '.join(own)}" if own else ", begun by other servers"
            raise InvalidInput(
                f"{MAX_AGENTS} runs are under way already{ids}.", hint="Wait for one, or end one with agent_cancel."
            )
        id = start()
        _write({**under_way, id: space})
    return id


def _is_under_way(id: str) -> bool:
    try:
        run = journal.shared().run(id)
    except TrajectoryNotFound:
        return False
    state = journal.state_of(run)
    starting = run.result is None and time.time() - run.created < _STARTING
    return state == "running" or (state == "waiting" and starting)


def _read() -> dict[str, str]:
    path = os.path.join(state_dir(), f"{_FILE}.json")
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}, which lists runs, cannot be read: {error}.", hint="Remove it.") from None
    if not isinstance(known, dict):
        raise StoreError(f"{path}, which lists runs, holds something else.", hint="Remove it.")
    return {str(id): str(space) for id, space in known.items()}


def _write(known: dict[str, str]) -> None:
    path = os.path.join(state_dir(), f"{_FILE}.json")
    draft = f"{path}.new"
    try:
        with open(draft, "w", encoding="utf-8", opener=private) as file:
            json.dump(known, file)
        os.replace(draft, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}.") from error
