"""The operations on shell sessions: a shell each, made once. When it has ended, so has the session."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from . import toolchains
from .arguments import Arguments
from .cellrun import Cell
from .channel import Channel, Operation
from .context import Context
from .contextstart import ContextSettings
from .machine import Machine
from .reaper import exit_code
from .refusal import BUSY, SESSION_ENDED, Refused, invalid
from .surroundings import checked_env, checked_start
from .toolchains import SHELL

_MAX_SESSIONS = 64


class Session(Context):
    """A context whose process is never made anew: a command must not find an empty shell where it left a full one."""

    _how: Optional[str] = None

    def prepare(self) -> Any:
        """Raises Refused when its shell has ended."""
        self._machine.reaper.reap()
        if self._how is not None:
            raise Refused(
                SESSION_ENDED,
                "The shell of session %s has ended (%s), and what it kept with it; open another session."
                % (self.settings.name, self._how),
            )
        return super().prepare()

    def _exited(self) -> None:
        link = self._link
        if link is not None:
            killed = os.WIFSIGNALED(link.status)
            self._how = "signal %d" % os.WTERMSIG(link.status) if killed else "exit code %d" % exit_code(link.status)
        super()._exited()


class Sessions:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._sessions: Dict[str, Session] = {}

    def names(self) -> List[str]:
        return list(self._sessions)

    def open(self, arguments: Arguments) -> Dict[str, Any]:
        """Make one, and its shell with it, so that what is wrong is told now."""
        if len(self._sessions) >= _MAX_SESSIONS:
            raise Refused(BUSY, "This sandbox already has %d sessions; close some." % _MAX_SESSIONS)
        shell = arguments.text("shell", "bash")
        known = toolchains.find(shell)
        if known is None or known.kind != SHELL:
            shells = ", ".join(language.name for language in toolchains.LANGUAGES if language.kind == SHELL)
            raise invalid("%.100r is no shell that can hold a session; those that can are %s." % (shell, shells))
        cwd = checked_start(self._machine, arguments.optional_text("cwd"))
        env = checked_env(arguments.mapping("env"))
        name = "session-%s" % os.urandom(4).hex()
        session = Session(self._machine, ContextSettings(name, known.name, cwd, env))
        session.prepare()
        self._sessions[name] = session
        return {"session": name, "shell": known.name}

    def run(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        """A command."""
        arguments = Arguments(request)
        cell = Cell(
            channel, {"code": arguments.text("command")}, arguments.seconds("timeout"), arguments.count("limit")
        )
        self._known(arguments).submit(cell)
        return cell

    def find(self, arguments: Arguments) -> Dict[str, Any]:
        session = self._known(arguments)
        return {"session": session.settings.name, "shell": session.settings.language}

    def interrupt(self, arguments: Arguments) -> Dict[str, Any]:
        return {"interrupted": self._known(arguments).interrupt()}

    def close(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        """End its shell with all that was started in it. One that is not there is closed already."""
        session = self._sessions.pop(Arguments(request).text("session"), None)
        if session is None:
            channel.end({})
        else:
            session.restart(lambda: channel.end({}))
        return Operation(channel)

    def _known(self, arguments: Arguments) -> Session:
        name = arguments.text("session")
        session = self._sessions.get(name)
        if session is None:
            raise Refused(SESSION_ENDED, "There is no session %.100s; it was closed, or the sandbox stopped." % name)
        return session
