"""How a context's process ended, in words."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Dict

if TYPE_CHECKING:
    from .contextlink import ContextLink
    from .machine import Machine


def death(link: ContextLink, machine: Machine) -> Dict[str, str]:
    """As the error of the cell that ran in it."""
    status = link.status
    name = "ContextDied"
    if link.reason:
        reason = link.reason
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and machine.victims.out_of_memory():
            name, reason = "OutOfMemory", "the sandbox ran out of memory, and the process of the cell was ended for it"
        else:
            reason = "signal %d (%s) ended the process of the cell" % (number, _name(number))
    else:
        reason = "the process of the cell exited with %d" % os.WEXITSTATUS(status)
    value = "%s; the variables of this context are lost" % reason
    return {"name": name, "value": value, "traceback": "%s: %s\n" % (name, value)}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real time"
