"""The tools `diff` and `apply`: what a session has changed of the directory that it was made over."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..errors import Unsupported
from ..types import Change
from .desk import Desk, Outcome, refused, said
from .sessions import DEFAULT, Session

_GUARDED = "The configuration of agents lies there, which no session changes; bring it over by hand."
_OWN = "What this server runs itself lies there, which no session changes; bring it over by hand."
_FRAME = 100
"""Characters that a change takes whatever its path and its text are."""


def diff(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """The changes, with as much of their text as an answer holds."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    _check_source(session)
    room = desk.settings.max_output
    changes: list[dict[str, Any]] = []
    lines, truncated = [], False
    found = session.sandbox.diff(arguments.get("paths"))
    for change in found:
        room -= len(change.path) + _FRAME
        if room < 0 and changes:
            break
        text = change.diff
        if text is not None and len(text) > room:
            text, truncated = None, True
        room -= len(text or "")
        changes.append(
            {
                "path": change.path,
                "kind": change.kind,
                "type": change.type,
                "level": change.level,
                "added_lines": change.added_lines,
                "removed_lines": change.removed_lines,
                "diff": text,
            }
        )
        lines.append(text or f"{change.kind} {change.path}")
    left_out = len(found) - len(changes)
    if left_out:
        truncated = True
        lines.append(f"[{left_out} more changes are left out; ask for them by `paths`.]")
    elif truncated:
        lines.append("[Some texts are too long for one answer; ask for them by `paths`.]")
    structured = {"session_id": session.name, "changes": changes, "truncated": truncated}
    return said("\n".join(lines) or "(no changes)", structured)


def apply(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Take the changes over into the source, where the owner of the server allows it."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    _check_source(session)
    id = session.sandbox.id
    if not desk.settings.apply:
        return refused(
            "This server changes nothing on its host. The user can look at the changes with "
            f"`atoll diff {id}` and take them over with `atoll apply {id}`. The owner of the server allows this tool "
            "with `atoll mcp-serve --allow-apply`."
        )
    desk.sessions.check_trust(session)
    paths = arguments.get("paths")
    guarded = _within(session, desk.pin.places())
    own = _within(session, desk.ground.guarded)
    # What was not reviewed is refused, whatever the session writes meanwhile.
    reviewed = None
    if guarded or own:
        reviewed = [
            change
            for change in session.sandbox.diff(paths, text=False)
            if not _touches(change, guarded + own) and not _is_below(change.path, own)
        ]
    done = session.sandbox.apply(paths, on_conflict=arguments.get("on_conflict", "ask"), reviewed=reviewed)
    rejected = {path: _reason(path, guarded, own) or reason for path, reason in done.rejected.items()}
    lines = [f"applied {path}" for path in done.applied]
    lines += [f"in conflict: {path}: {reason}" for path, reason in done.conflicts.items()]
    lines += [f"refused: {path}: {reason}" for path, reason in rejected.items()]
    structured = {
        "session_id": session.name,
        "applied": list(done.applied),
        "conflicts": dict(done.conflicts),
        "rejected": rejected,
    }
    return said("\n".join(lines) or "(nothing to apply)", structured)


def _within(session: Session, places: Iterable[str]) -> list[str]:
    """The places that lie in the session's source, as its paths; "" is for one that holds all of it."""
    source = session.sandbox.info.spec.source
    if source is None:
        return []
    root = os.path.realpath(source).rstrip("/") + "/"
    inner = [place.removeprefix(root) for place in places if place.startswith(root)]
    return [*inner, *("" for place in places if root.startswith(place.rstrip("/") + "/"))]


def _reason(path: str, guarded: list[str], own: list[str]) -> str | None:
    if _is_at(path, guarded):
        return _GUARDED
    return _OWN if _is_at(path, own) or _is_below(path, own) else None


def _touches(change: Change, guarded: list[str]) -> bool:
    """Whether a change would have something else be read there. A directory above that stays changes nothing."""
    stays = change.type == "directory" and change.kind != "deleted"
    return change.path in guarded or (not stays and _is_at(change.path, guarded))


def _is_at(path: str, guarded: list[str]) -> bool:
    return any(place == path or place.startswith(path + "/") for place in guarded)


def _is_below(path: str, places: list[str]) -> bool:
    return any(not place or path.startswith(place + "/") for place in places)


def _check_source(session: Session) -> None:
    spec = session.sandbox.info.spec
    if spec.source is None and spec.codebase is None:
        raise Unsupported(
            f"The session {session.name!r} was made over no directory, so there is nothing to compare it with.",
            hint="Make one with the argument `source` of execute_python or run_command.",
        )
