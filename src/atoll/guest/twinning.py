"""How a context stands still to be forked into other sandboxes, and how it goes on as the fork.

The keeper brings a standing context to the point where it forks, and makes the forks elsewhere: `os.fork` itself never
happens. In each fork everything is as it was here but for what belongs to the sandbox: the sockets and pipes to the
guest, which are new ones under the same numbers, the page that is shared with it, and the number of the process.
Whatever else was open can only be closed there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from time import monotonic
from typing import Any, Callable

_PR_SET_DUMPABLE = 4
_prctl = ctypes.CDLL(None).prctl

NOT_MADE = 1 << 22
"""What `os.fork` returns where the keeper has made the forks: no process has this number."""

GO, STAY = signal.SIGURG, signal.SIGWINCH
"""Signals that nobody dies of. The keeper sends them: the first when it has taken hold, the second when all is done."""


def stand(ready: Callable[[], None], fork: Callable[[], int], seconds: float) -> bool:
    """Wait to be forked, for so long at most; `ready` is called when it can be. True in a fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (GO, STAY))
    try:
        until = monotonic() + seconds
        ready()
        while True:
            came = signal.sigtimedwait((GO, STAY), max(0.0, until - monotonic()))
            if came is None or came.si_signo == STAY:
                return False
            made = fork()
            if made == 0:
                return True
            if made != NOT_MADE:
                os.waitpid(made, 0)  # nobody had taken hold: somebody else has sent the signal
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_twin() -> bool:
    """In a child: whether it was made by the keeper, so that its parent is nobody in its sandbox."""
    return os.getppid() == 0


def own_its_proc() -> None:
    """The guest hides its memory from the code that it runs; a context may look at its own in /proc."""
    _prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def settle_in() -> None:
    """What is needed in a twin and in no other fork, beside what concerns its requests."""
    own_its_proc()
    signal.set_wakeup_fd(-1)  # it was closed, and the number may be another file's soon
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def renew_loop(loop: Any) -> None:
    """Give an event loop the descriptors back that it works with. What tasks had open themselves is lost.

    It may be of a class that a cell has brought; then it goes on as it can.
    """
    import asyncio
    import selectors

    if not isinstance(loop, asyncio.SelectorEventLoop) or loop.is_closed():
        return
    for closed in (loop._ssock, loop._csock, loop._selector):  # type: ignore[attr-defined]  # noqa: SLF001
        closed.close()
    loop._selector = selectors.DefaultSelector()  # type: ignore[attr-defined]  # noqa: SLF001
    loop._internal_fds = 0  # type: ignore[attr-defined]  # noqa: SLF001
    loop._make_self_pipe()  # type: ignore[attr-defined]  # noqa: SLF001
