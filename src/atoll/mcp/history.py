"""The tools `snapshot`, `rollback` and `fork`.

Snapshots of atoll have names for all sandboxes together; here a session has its own, so the sandbox is part of the
name that is stored.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ..errors import AtollError, InvalidInput, SnapshotNotFound
from ..policy.text import shown
from ..sync.snapshots import Snapshots
from ..types import Info
from .desk import Desk, Outcome, said
from .sessions import DEFAULT, check_name
from .settings import MAX_SNAPSHOTS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


def snapshot(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Keep files and variables of a session under a name of its own."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    name = _checked(arguments.get("name", f"snap-{os.urandom(4).hex()}"))
    if len(Snapshots(session.sandbox.driver).list(sandbox=session.sandbox.id)) >= MAX_SNAPSHOTS:
        raise InvalidInput(
            f"The session {session.name!r} has {MAX_SNAPSHOTS} snapshots already.",
            hint="Fork it to go on with a new one, or have the user delete some with `atoll snapshot delete`.",
        )
    try:
        kept = session.sandbox.snapshot(_stored(session.sandbox.id, name))
    except InvalidInput as error:
        raise InvalidInput(str(error).replace(_stored(session.sandbox.id, name), name)) from None
    lost = dict(kept.lost)
    structured = {"session_id": session.name, "name": name, "size": kept.size, "lost": lost}
    return said(f"Kept as {name!r}.{_told(lost)}", structured)


def rollback(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Have a session as in one of its snapshots."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    name = _checked(arguments["name"])
    try:
        session.sandbox.rollback(_stored(session.sandbox.id, name))
    except SnapshotNotFound:
        raise _missing(session.sandbox.id, session.name, name) from None
    return said(f"The session {session.name!r} is as in {name!r}.", {"session_id": session.name, "name": name})


def fork(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """A new session that goes on where another is, or was."""
    parent = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    name = check_name(arguments.get("new_session_id", f"{parent.name[:48]}-{os.urandom(4).hex()}"))
    past = None
    if "snapshot" in arguments:
        past = _stored(parent.sandbox.id, _checked(arguments["snapshot"]))
    try:
        session = desk.sessions.fork(parent, name, past)
    except SnapshotNotFound:
        raise _missing(parent.sandbox.id, parent.name, arguments["snapshot"]) from None
    session.fresh = False
    lost = dict(session.sandbox.info.lost)
    structured = {"session_id": name, "from_session_id": parent.name, "sandbox": session.sandbox.id, "lost": lost}
    return said(f"The session {name!r} goes on where {parent.name!r} is.{_told(lost)}", structured)


def delete_snapshots(info: Info) -> None:
    """Those that were made here of a sandbox that has ended."""
    kept = Snapshots(info.driver)
    try:
        for each in kept.list(sandbox=info.id):
            if each.name.startswith(_stored(info.id, "")):
                kept.delete(each.name)
    except AtollError:
        pass  # a driver without snapshots has none to delete


def _stored(sandbox: str, name: str) -> str:
    return f"{sandbox}.{name}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"The name of the snapshot is {shown(name)}; give 1 to 60 letters, digits, '.', '_', '+' or '-', "
            "beginning with a letter or a digit."
        )
    return name


def _missing(sandbox: str, session: str, name: str) -> SnapshotNotFound:
    prefix = _stored(sandbox, "")
    known = [each.name.removeprefix(prefix) for each in Snapshots().list(sandbox=sandbox)]
    there = f"It has {', '.join(known)}." if known else "It has none."
    return SnapshotNotFound(f"The session {session!r} has no snapshot {name!r}.", hint=there)


def _told(lost: dict[str, str]) -> str:
    if not lost:
        return ""
    return " Not kept: " + "; ".join(f"{name} ({reason})" for name, reason in lost.items()) + "."
