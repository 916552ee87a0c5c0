"""Turning a fork of the guest into a context: a plain Python process as a cell expects to find it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from typing import Callable, Dict, NamedTuple, NoReturn, Optional, Tuple

from .awakening import Memory
from .cells import Service
from .cellstreams import Streams
from .config import Config
from .fresh import reseed, set_interpreter
from .guard import Guard
from .guestport import GuestPort
from .shared import Shared
from .situation import set_environment

_PR_SET_DUMPABLE = 4
_prctl = ctypes.CDLL(None).prctl

BROKEN = 70
"""How a context exits whose own code has failed."""


rehearsal: Optional[Callable[[], None]] = None
"""What a context that is made ahead does while nobody waits: its memory is then its own, and not copied later."""


class Ends(NamedTuple):
    """What a context shares with its guest.

    `taps` are the guest's ends of the pipes that are its standard output and error, and `settled` is where the guest
    says that it has taken what was in them; a context that has no processes has none.
    """

    wire: socket.socket
    stdin: int
    stdout: int
    stderr: int
    taps: Tuple[int, int]
    shared: Shared
    settled: int = -1


def become_context(
    config: Config, env: Dict[str, str], ends: Ends, frozen: str = "", *, guarded: bool = False
) -> NoReturn:
    """In the fork, in the working directory. Never returns into the guest's code, whose state is a copy.

    `env` is added to the sandbox's own, `frozen` is a file with variables to bring back. If `guarded`, its cells run
    under the rules of `guard`.
    """
    try:
        _own_its_proc()
        reset_signals()
        os.setsid()
        connect(ends)
        set_environment({**config.environment(), **env})
        if rehearsal is not None:
            rehearsal()
        set_interpreter(config)
        reseed()
        memory = Memory(config.state_directory(), frozen)
        port = GuestPort(ends.wire, ends.settled)
        streams = Streams(port, ends.taps, ends.stdout)
        Service(port, streams, ends.shared, memory, Guard() if guarded else None).run()
    except BaseException:  # noqa: BLE001  # it must not unwind into the guest's code
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(BROKEN)


def _own_its_proc() -> None:
    """The guest hides its memory from the code that it runs; a context may look at its own in /proc."""
    _prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def reset_signals() -> None:
    """In any fork of the guest that runs Python."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, lambda _number, _frame: None)


def connect(ends: Ends) -> None:
    """Have its standard streams, what it shares with its guest and nothing else open."""
    for fd, copy in ((ends.stdin, 0), (ends.stdout, 1), (ends.stderr, 2)):
        os.dup2(fd, copy)
    close_all_but((0, 1, 2, ends.wire.fileno(), ends.stdout, ends.settled, *ends.taps))


def close_all_but(kept: Tuple[int, ...]) -> None:
    """The guest's other descriptors, to clients and to other processes, are nobody else's business."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # it was the descriptor of the listing
