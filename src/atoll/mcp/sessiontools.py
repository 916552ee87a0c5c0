"""The tools `list_sessions` and `destroy_session`."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isnan
from typing import Any

from ..client import answers
from ..errors import AtollError
from ..io import drive
from ..types import Info
from .desk import Desk, Outcome, said
from .history import delete_snapshots
from .sessions import LABEL, Sessions, check_name

_PATIENCE = 2.0
"""Seconds for a session to say what runs in it: one that is stuck must not hide the others."""
_FIRST = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()


def moment(seconds: float) -> str:
    """A time as ISO 8601 has it, in UTC, whatever a file claims: no year before the first, none after the last."""
    known = _FIRST if isnan(seconds) else min(max(seconds, _FIRST), _LAST)
    return datetime.fromtimestamp(known, UTC).isoformat(timespec="seconds")


def list_sessions(desk: Desk, arguments: dict[str, Any]) -> Outcome:  # noqa: ARG001  # it has none
    """Every session of this space."""
    listed = [_described(desk.sessions, info) for info in desk.sessions.infos()]
    lines = [
        f"{item['session_id']}: {item['environment']}, {item['status']}, last used {item['last_used']}"
        for item in listed
    ]
    return said("\n".join(lines) or "(no sessions)", {"sessions": listed})


def _described(sessions: Sessions, info: Info) -> dict[str, Any]:
    return {
        "session_id": info.labels[LABEL],
        "sandbox": info.id,
        "environment": info.driver,
        "status": info.status,
        "created": moment(info.created),
        "last_used": moment(sessions.last_used(info)),
        "expires": None if info.expires is None else moment(info.expires),
        "network": info.spec.network,
        "source": info.spec.source,
        "contexts": _contexts(sessions, info),
    }


def _contexts(sessions: Sessions, info: Info) -> list[dict[str, Any]]:
    """What runs in it; nothing is known of one that cannot be asked now."""
    if info.status != "running":
        return []
    try:
        said = drive(sessions.links(info).ask("contexts", quiet=_PATIENCE))
        return [
            {
                "name": answers.text(each, "name"),
                "language": answers.text(each, "language"),
                "busy": answers.flag(each, "busy"),
                "cells": answers.integer(each, "count"),
            }
            for each in answers.items(said, "contexts")
        ]
    except AtollError:
        return []


def destroy_session(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """End a session and remove everything of it."""
    name = check_name(arguments["session_id"])
    gone = desk.sessions.destroy(name)
    for sandbox in gone:
        delete_snapshots(sandbox)
    text = f"The session {name!r} is gone." if gone else f"There was no session {name!r}."
    return said(text, {"session_id": name, "destroyed": bool(gone)})
