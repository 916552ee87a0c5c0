"""The tools that look at, set and clear the Python variables of a session."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ..errors import InvalidInput, Unsupported
from ..types import Variable
from .desk import Desk, Outcome, said, shortened
from .encoding import encoded, plain
from .execute import context_of
from .sessions import DEFAULT, Session

_MAX_VALUE = 16 << 20
_LONGEST_TEXT = 1000
_LONGEST_LINE = 200


def get_repl_context(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """All variables in short, or the value of one."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    context = context_of(arguments)
    structured: dict[str, Any] = {"session_id": session.name, "context": context}
    room = desk.settings.max_output
    if "name" not in arguments:
        return _listing(session.sandbox.variables.list(context), structured, room)
    name = arguments["name"]
    value = _value(session, name, context)
    text = encoded(value)
    if len(text) > room:
        raise InvalidInput(
            f"{name} takes {len(text)} characters as JSON, and an answer has {room}.",
            hint="Look at a part of it with execute_python.",
        )
    return said(text, {**structured, "name": name, "value": plain(value), "truncated": False})


def _listing(variables: list[Variable], structured: dict[str, Any], room: int) -> Outcome:
    """As many as an answer holds."""
    shown: list[dict[str, Any]] = []
    lines = []
    for item in variables:
        described = {**item._asdict(), "text": shortened(item.text, _LONGEST_TEXT)[0]}
        room -= len(encoded(described))
        if room < 0:
            break
        shown.append(described)
        lines.append(f"{item.name}: {item.type} = {shortened(item.text, _LONGEST_LINE)[0]}")
    left_out = len(variables) - len(shown)
    if left_out:
        lines.append(f"[{left_out} more are left out; look at one with name, or at some with execute_python.]")
    structured |= {"variables": shown, "truncated": left_out > 0}
    return said("\n".join(lines) or "(no variables)", structured)


def _value(session: Session, name: str, context: str) -> Any:
    try:
        value = session.sandbox.variables.get(name, context, max_size=_MAX_VALUE)
    except Unsupported:
        # A table or an array, for which a library is missing out here: its text must do.
        return next(item.text for item in session.sandbox.variables.list(context) if item.name == name)
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode("ascii")}
    return value if isinstance(value, str | int | float | list | dict | None) else str(value)


def set_repl_context(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Give variables values: one by `name` and `value`, or several by `variables`."""
    values = dict(arguments.get("variables", {}))
    if "name" in arguments:
        if "value" not in arguments:
            raise InvalidInput(f"There is no value for {arguments['name']!r}; give value, null if it is to be None.")
        values[arguments["name"]] = arguments["value"]
    elif "value" in arguments:
        raise InvalidInput("There is a value without a name; give the name of the variable.")
    if not values:
        raise InvalidInput("There is nothing to set; give name and value, or variables.")
    session = desk.sessions.open(arguments.get("session_id", DEFAULT))
    context = context_of(arguments)
    session.sandbox.variables.update(values, context)
    names = list(values)
    fresh, session.fresh = session.fresh, False
    structured = {"session_id": session.name, "context": context, "names": names, "new_session": fresh}
    return said(f"Set {', '.join(names)}.", structured)


def clear_repl_context(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Forget some variables, or all with the process that has them."""
    session = desk.sessions.existing(arguments.get("session_id", DEFAULT))
    context = context_of(arguments)
    names = arguments.get("names")
    structured: dict[str, Any] = {"session_id": session.name, "context": context, "cleared": names or []}
    if names is not None:
        if names:
            session.sandbox.variables.clear(*names, context=context)
        return said(f"Forgot {', '.join(names) or 'nothing'}.", structured)
    # Deleting, not restarting: what is made anew has lost nothing, and the next cell says so.
    if any(known.name == context for known in session.sandbox.contexts.list()):
        session.sandbox.contexts.delete(context)
    return said(f"The context {context!r} of {session.name!r} is empty now.", structured)
