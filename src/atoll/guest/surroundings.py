"""A directory and an environment that a client asks for, checked before anything starts in them."""

from __future__ import annotations

from typing import Dict, Optional

from .arguments import encoded
from .machine import Machine
from .refusal import invalid


def checked_cwd(machine: Machine, cwd: Optional[str]) -> Optional[str]:
    """How processes of the sandbox name it. Raises Refused when it is not there, or closed to us."""
    if cwd is None:
        return None
    machine.enter(cwd)
    return machine.root.real(cwd)


def checked_start(machine: Machine, cwd: Optional[str]) -> str:
    """Where a process of ours is to start, as `machine.enter` takes it. Raises as `checked_cwd` does."""
    if cwd is None:
        return "."
    machine.enter(cwd)
    return machine.root.absolute(cwd)


def checked_env(env: Dict[str, str]) -> Dict[str, str]:
    """Raises Refused for what no environment can hold."""
    for name, value in env.items():
        if not name or "=" in name:
            raise invalid("%r is not a name for an environment variable." % name[:100])
        encoded(name, "An environment variable")
        encoded(value, "An environment variable")
    return env
