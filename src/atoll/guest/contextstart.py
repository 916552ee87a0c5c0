"""Starting the process of a Python context, which the guest forks."""

from __future__ import annotations

import os
import socket
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from . import packets
from .contextprocess import Ends, become_context
from .descriptors import close_all, pipe
from .guard import RESTRICTED
from .machine import Machine
from .marks import put_mark
from .refusal import no_process_left
from .shared import Shared

Exited = Callable[[int], None]


class ContextSettings(NamedTuple):
    """What a context is made with. Its process may be made more than once.

    `frozen` is the file with the variables that its first process brings back, if there is one.
    """

    name: str = "main"
    language: str = "python"
    cwd: str = "."
    env: Dict[str, str] = {}  # noqa: RUF012  # never changed
    frozen: str = ""


class Started(NamedTuple):
    """The guest's ends of socket and pipes, the pid, the page that both see, and how its end is told."""

    sock: socket.socket
    pid: int
    outputs: Tuple[int, int]
    shared: Shared
    watch: Callable[[Exited], None]
    settled: int = -1


def start(machine: Machine, settings: ContextSettings) -> Started:
    """Raises: Refused: there is no process left, or its directory is not there."""
    machine.enter(settings.cwd)
    return _made_ahead(machine, settings) or _forked(machine, settings)


def _made_ahead(machine: Machine, settings: ContextSettings) -> Optional[Started]:
    """One that is a child of the guest already, and has no mark yet."""
    started: Optional[Started] = None if machine.spare is None else machine.spare(machine, settings)
    if started is not None:
        put_mark(started.pid, machine.marks.newest)
    return started


def _forked(machine: Machine, settings: ContextSettings) -> Started:
    ours, theirs = packets.pair()
    shared = Shared()
    made: List[int] = []
    try:
        ours.setblocking(False)
        stdout_end, stdout = pipe(made)
        stderr_end, stderr = pipe(made)
        hears, settled = pipe(made)
        os.set_blocking(settled, False)
        pid = machine.victims.fork()
    except OSError as error:
        close_all(made)
        ours.close()
        raise no_process_left() from error
    else:
        if pid == 0:
            ends = Ends(theirs, machine.devnull, stdout, stderr, (stdout_end, stderr_end), shared, hears)
            guarded = settings.language == RESTRICTED
            (machine.become or become_context)(machine.config, settings.env, ends, settings.frozen, guarded=guarded)
    finally:
        theirs.close()
    close_all([stdout, stderr, hears])
    watch = machine.reaper.watch
    return Started(ours, pid, (stdout_end, stderr_end), shared, lambda exited: watch(pid, exited), settled)
