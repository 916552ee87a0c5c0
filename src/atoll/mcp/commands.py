"""The tool `run_command`."""

from __future__ import annotations

from typing import Any

from ..client.lines import by_line
from ..client.reasons import NO_NETWORK
from ..policy.sizes import format_size
from ..types import Completed
from .desk import Desk, Outcome, said, shortened
from .execute import seconds
from .sessions import DEFAULT, Session

_LIMIT = 4 << 20
"""Bytes of output that are taken from a command; less is passed on."""


def run_command(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Run a command to its end. One that fails is data, not a failure of the tool."""
    session = desk.sessions.open(
        arguments.get("session_id", DEFAULT),
        environment=arguments.get("environment"),
        source=arguments.get("source"),
    )
    heard = None if desk.progress is None else by_line(desk.progress)
    done = session.sandbox.run(
        arguments["command"],
        stdin=arguments.get("stdin"),
        workdir=arguments.get("workdir"),
        timeout=seconds(arguments),
        max_output=_LIMIT,
        on_stdout=heard,
        on_stderr=heard,
    )
    room = desk.settings.max_output
    stdout, cut_out = shortened(done.stdout, room)
    stderr, cut_err = shortened(done.stderr, room // 2)
    truncated = done.truncated or cut_out or cut_err
    hint = _hint(desk, session, done)
    fresh, session.fresh = session.fresh, False
    structured = {
        "session_id": session.name,
        "success": done.success,
        "exit_code": done.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "duration": done.duration,
        "timed_out": done.timed_out,
        "truncated": truncated,
        "hint": hint,
        "new_session": fresh,
    }
    parts = [stdout, f"[stderr]\n{stderr}" if stderr else ""]
    if done.timed_out:
        parts.append(f"[It ran out of time after {done.duration:.1f} s, and was killed with all that it started.]")
    elif done.exit_code:
        parts.append(f"[exit code {done.exit_code}]")
    if hint is not None:
        parts.append(f"[{hint}]")
    if truncated:
        parts.append("[Not all of the output is here: it is too long. Write it to a file and read parts of it.]")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return said(text or "(no output, exit code 0)", structured)


def _hint(desk: Desk, session: Session, done: Completed) -> str | None:
    """Why it failed, where that is known, in what a model has: calls of tools, and not our options."""
    if done.hint is None:
        return None
    if done.out_of_memory:
        limit = format_size(session.sandbox.info.spec.resources.memory)
        return f"It was killed for its memory: sessions have {limit}, which only the owner of this server can change."
    hints = ["A larger `timeout` gives it more time."] if done.timed_out else []
    if NO_NETWORK in done.hint:
        more = " install_packages adds Python packages all the same." if desk.settings.install else ""
        hints.append(f"This session has no network, and downloads fail.{more}")
    return " ".join(hints) or None
