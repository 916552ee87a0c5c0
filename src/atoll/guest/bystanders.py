"""Processes that no checkpoint keeps: what contexts have started, commands, and the shells of sessions."""

from __future__ import annotations

from typing import Dict, List

from . import proc
from .commands import Commands
from .lasting import Standing
from .machine import Machine
from .running import listed
from .sessions import Sessions


def lost(machine: Machine, commands: Commands, sessions: Sessions, contexts: List[Standing]) -> Dict[str, str]:
    """By what is lost, the reasons. The names have a space, which no context's or variable's has."""
    found: Dict[str, str] = {}
    table = proc.tasks()
    for each in contexts:
        if each.pid is not None and each.used:
            below = machine.killer.members(each.mark, table) - {each.pid}
            if below:
                found["%s/child processes" % each.settings.name] = _reason(sorted(below))
    running = [pid for pid in commands.running() if pid in table and table[pid].alive]
    if running:
        found["running commands"] = _reason(running)
    if sessions.names():
        found["shell sessions"] = "shells cannot be kept (%s)" % listed(sessions.names())
    return found


def _reason(pids: List[int]) -> str:
    return "processes cannot be kept (%s)" % listed([proc.command_line(pid) for pid in pids])
