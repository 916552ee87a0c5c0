"""The schemas of what tools give as data."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_MAYBE = {"type": ["string", "null"]}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer"}
_NUMBER = {"type": "number"}
_NAMES = {"type": "array", "items": _TEXT}
_REASONS = {"type": "object", "additionalProperties": _TEXT}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


def _list(**members: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**members)}


_RUN = {"type": "object", "properties": {"id": _TEXT, "state": _TEXT}, "required": ["id"]}

OUTPUTS: dict[str, dict[str, Any]] = {
    "echo": _object(text=_TEXT),
    # Only what a program needs first is described member by member: clients hold every answer against this, and each
    # member that they look at costs a twentieth of a warm cell.
    "execute_python": {
        "type": "object",
        "description": "Also: error, null or an object of name, value and traceback; stderr, session_id and context, "
        "texts; count, the number of the cell; duration, in seconds; and the flags timed_out, truncated (not all of "
        "the output is here), state_lost (variables of earlier calls are gone) and new_session.",
        "properties": {"success": _FLAG, "stdout": _TEXT, "result": _MAYBE},
        "required": [
            "session_id", "context", "success", "stdout", "stderr", "result", "error", "count", "duration", "timed_out",
            "truncated", "state_lost", "new_session",
        ],
    },
    "run_command": _object(
        session_id=_TEXT, success=_FLAG, exit_code=_COUNT, stdout=_TEXT, stderr=_TEXT, duration=_NUMBER,
        timed_out=_FLAG, truncated=_FLAG, hint=_MAYBE, new_session=_FLAG,
    ),
    "install_packages": _object(session_id=_TEXT, packages=_NAMES, new_session=_FLAG),
    "get_repl_context": {
        "type": "object",
        "properties": {
            "session_id": _TEXT,
            "context": _TEXT,
            "variables": _list(name=_TEXT, type=_TEXT, size=_COUNT, text=_TEXT),
            "name": _TEXT,
            "value": {},
            "truncated": _FLAG,
        },
        "required": ["session_id", "context", "truncated"],
    },
    "set_repl_context": _object(session_id=_TEXT, context=_TEXT, names=_NAMES, new_session=_FLAG),
    "clear_repl_context": _object(session_id=_TEXT, context=_TEXT, cleared=_NAMES),
    "list_sessions": _object(
        sessions=_list(
            session_id=_TEXT, sandbox=_TEXT, environment=_TEXT, status=_TEXT, created=_TEXT, last_used=_TEXT,
            expires=_MAYBE, network=_TEXT, source=_MAYBE,
            contexts=_list(name=_TEXT, language=_TEXT, busy=_FLAG, cells=_COUNT),
        )
    ),
    "destroy_session": _object(session_id=_TEXT, destroyed=_FLAG),
    "read_file": _object(
        session_id=_TEXT, path=_TEXT, size=_COUNT, encoding=_TEXT, content=_TEXT, truncated=_FLAG,
    ),
    "write_file": _object(session_id=_TEXT, path=_TEXT, size=_COUNT, new_session=_FLAG),
    "list_files": _object(
        session_id=_TEXT, path=_TEXT,
        entries=_list(path=_TEXT, name=_TEXT, type=_TEXT, size=_COUNT, mode=_TEXT, modified=_TEXT),
        skipped=_COUNT, truncated=_FLAG,
    ),
    "snapshot": _object(session_id=_TEXT, name=_TEXT, size=_COUNT, lost=_REASONS),
    "fork": _object(session_id=_TEXT, from_session_id=_TEXT, sandbox=_TEXT, lost=_REASONS),
    "rollback": _object(session_id=_TEXT, name=_TEXT),
    "diff": _object(
        session_id=_TEXT,
        changes=_list(path=_TEXT, kind=_TEXT, type=_TEXT, level=_TEXT, added_lines=_COUNT, removed_lines=_COUNT,
                      diff=_MAYBE),
        truncated=_FLAG,
    ),
    "apply": _object(session_id=_TEXT, applied=_NAMES, conflicts=_REASONS, rejected=_REASONS),
    "agent_run": _RUN,
    "agent_status": _RUN,
    "agent_cancel": _object(id=_TEXT, cancelled=_FLAG),
}  # fmt: skip
