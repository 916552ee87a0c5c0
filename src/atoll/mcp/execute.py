"""The tool `execute_python`."""

from __future__ import annotations

from typing import Any

from ..client import cells
from ..client.lines import by_line
from ..errors import InvalidInput
from ..io import drive
from ..policy.text import shown
from ..types import Execution
from .desk import Desk, Outcome, shortened, text_block
from .rich import blocks_of
from .sessions import DEFAULT, Session
from .settings import MAX_TIMEOUT, PROFILES

_LIMIT = 16 << 20
"""Bytes of output and results that are taken from a cell; of text, less is passed on."""

_LONGEST_CONTEXT = 64
_NOBODY = cells.Listeners()


def execute_python(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Run code in a context of a session. Code that raises is data, not a failure of the tool."""
    session = desk.sessions.open(
        arguments.get("session_id", DEFAULT),
        environment=arguments.get("environment"),
        source=arguments.get("source"),
    )
    context = context_of(arguments)
    request = {
        "op": "code",
        "code": arguments["code"],
        "timeout": seconds(arguments),
        "limit": _LIMIT,
        "context": context,
    }
    listeners = _NOBODY
    if desk.progress is not None:
        heard = by_line(desk.progress)
        listeners = cells.Listeners(on_stdout=heard, on_stderr=heard)
    execution = drive(cells.run_code(session.links, request, listeners))
    return outcome(execution, session, context, desk.settings.max_output)


def context_of(arguments: dict[str, Any]) -> str:
    """Raises InvalidInput."""
    context: str = arguments.get("context", "main")
    if not (0 < len(context) <= _LONGEST_CONTEXT and context.isprintable()):
        raise InvalidInput(f"context is {shown(context)}; give a name of 1 to {_LONGEST_CONTEXT} printable characters.")
    return context


def seconds(arguments: dict[str, Any]) -> float:
    """What `timeout` or `profile` ask for. Raises InvalidInput."""
    timeout = arguments.get("timeout")
    if timeout is None:
        return PROFILES[arguments.get("profile", "default")]
    if not 0 < timeout <= MAX_TIMEOUT:
        raise InvalidInput(f"timeout is {shown(timeout)}; give seconds above 0, at most {MAX_TIMEOUT:.0f}.")
    return float(timeout)


def outcome(execution: Execution, session: Session, context: str, room: int) -> Outcome:
    """What the model sees of a cell, and the same as data."""
    stdout, cut_out = shortened(execution.stdout, room)
    stderr, cut_err = shortened(execution.stderr, room // 2)
    value = execution.text
    result, cut_result = shortened(value, room) if value else (value, False)
    rich, cut_rich = blocks_of(execution.results, room) if execution.results else ([], False)
    truncated = execution.truncated or cut_out or cut_err or cut_result or cut_rich
    error = execution.error
    fresh, session.fresh = session.fresh, False
    structured = {
        "session_id": session.name,
        "context": context,
        "success": error is None and not execution.timed_out,
        "stdout": stdout,
        "stderr": stderr,
        "result": result,
        "error": None
        if error is None
        else {"name": error.name, "value": shortened(error.value, room)[0],
              "traceback": shortened(error.traceback, room)[0]},
        "count": execution.count,
        "duration": execution.duration,
        "timed_out": execution.timed_out,
        "truncated": truncated,
        "state_lost": execution.state_lost,
        "new_session": fresh,
    }  # fmt: skip
    shown_text = _text(structured, execution)
    return Outcome([text_block(shown_text), *rich], structured)


def _text(structured: dict[str, Any], execution: Execution) -> str:
    if not structured["stderr"] and structured["success"] and not structured["truncated"]:
        # Most cells, quickly.
        plain: str = structured["stdout"]
        if structured["result"] is not None:
            plain = f"{plain}{structured['result']}"
        if not structured["state_lost"]:
            return plain or "(no output)"
    parts = [structured["stdout"]]
    if structured["stderr"]:
        parts.append(f"[stderr]\n{structured['stderr']}")
    if structured["result"] is not None:
        parts.append(structured["result"])
    error = structured["error"]
    if error is not None and not execution.timed_out:
        parts.append(error["traceback"] or f"{error['name']}: {error['value']}")
    parts += _notes(structured, execution)
    return "\n".join(part.rstrip("\n") for part in parts if part) or "(no output)"


def _notes(structured: dict[str, Any], execution: Execution) -> list[str]:
    notes = []
    if execution.timed_out:
        kept = "its variables are lost" if execution.state_lost else "variables of the session are kept"
        notes.append(f"[The code ran out of time after {execution.duration:.1f} s and was stopped; {kept}.]")
    elif execution.state_lost:
        notes.append("[The variables of earlier calls are lost: the Python process had ended.]")
    if structured["truncated"]:
        notes.append("[Not all of the output is here: it is too long. Write it to a file and read parts of it.]")
    return notes
