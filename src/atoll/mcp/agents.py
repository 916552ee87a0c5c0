"""The tools that start, watch and end agents. Model and keys are the owner's; no call can name others."""

from __future__ import annotations

import re
from typing import Any

from ..errors import TrajectoryNotFound, Unsupported
from ..policy.text import shown
from .desk import Desk, Outcome, said, shortened
from .encoding import plain

_OPTIONS = ("max_iterations", "token_budget", "max_cost", "validate")
_ID = re.compile(r"tr-[0-9a-f]{16}")


def agent_run(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Start a run that outlives this server."""
    from ..agent import background
    from . import begun

    options = {name: arguments[name] for name in _OPTIONS if name in arguments}
    if desk.ground.imported:
        raise Unsupported(
            f"A run would import from {desk.ground.imported[0]}, which sessions of this server may change.",
            hint="The user should install atoll apart from the project, as with `pipx install atoll`.",
        )

    def start() -> str:
        desk.pin.check()
        return background.begin(arguments["task"], kind="agent", programs=desk.ground.programs, **options)

    id = begun.begin(desk.settings.space, start)
    text = f"The run {id} has begun; agent_status tells how far it is."
    missing = [] if desk.ground.programs else programs()
    if missing:
        names = ", ".join(missing)
        text += f" Without the MCP servers {names}: they are programs, and sessions may change what those load."
    return said(text, {"id": id, "state": "running"})


def programs() -> list[str]:
    """The MCP servers of the configuration that are programs of this host. Raises InvalidInput, StoreError."""
    from .. import config
    from ..config.servers import reached

    known = config.load()["mcp_servers"]
    return sorted(set(known) - set(reached(known)))


def agent_status(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """How far a run is."""
    status = plain(_status(arguments["id"]))
    room = desk.settings.max_output
    for name, value in status.items():
        if isinstance(value, str):
            status[name] = shortened(value, room)[0]
    lines = [f"{name}: {value}" for name, value in status.items() if value is not None]
    return said("\n".join(lines), {"id": arguments["id"], **status})


def agent_cancel(desk: Desk, arguments: dict[str, Any]) -> Outcome:  # noqa: ARG001  # it needs no session
    """End a run."""
    from ..agent.background import cancel

    _status(arguments["id"])
    ended = cancel(arguments["id"])
    text = f"The run {arguments['id']} is being ended." if ended else f"The run {arguments['id']} had ended already."
    return said(text, {"id": arguments["id"], "cancelled": ended})


def _status(id: str) -> dict[str, Any]:
    """That of a run whose whole id is known: guessing the beginning of one must not lead to runs of others.

    Raises:
        TrajectoryNotFound: there is none.
    """
    from ..agent.background import status

    # The journal takes the beginning of an id, too, and says which there are.
    if _ID.fullmatch(id) is None:
        raise TrajectoryNotFound(f"There is no run {shown(id)}; give the whole id that agent_run gave.")
    return status(id)
