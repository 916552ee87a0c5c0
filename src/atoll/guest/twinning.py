"""How a context stands still to be forked into other sandboxes, and how it goes on as the fork.

The keeper brings a standing context to the point where it forks, and makes the forks elsewhere: `os.fork` itself never
happens. In each fork everything is as it was here but for what belongs to the sandbox: the sockets and pipes to the
guest, which are new ones under the same numbers, the page that is shared with it, and the number of the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from time import monotonic
from typing import Any, Callable, List

_PR_SET_DUMPABLE = 4
_prctl = ctypes.CDLL(None).prctl

NOT_MADE = 1 << 22
"""What `os.fork` returns where the keeper has made the forks: no process has this number."""

_GO, _STAY = signal.SIGURG, signal.SIGWINCH
"""Signals that nobody dies of. The guest sends the second, the keeper the first, and only when it has taken hold."""

STAY = int(_STAY)


def stand(ready: Callable[[], None], fork: Callable[[], int], seconds: float) -> bool:
    """Wait to be forked, for so long at most; `ready` is called when it can be. True in a fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (_GO, _STAY))
    try:
        until = monotonic() + seconds
        ready()
        while True:
            came = signal.sigtimedwait((_GO, _STAY), max(0.0, until - monotonic()))
            if came is None or came.si_signo == _STAY:
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


_forgotten: List[Any] = []
"""Objects whose descriptors are gone: freed, they would close numbers that are others' by then."""


def renew_loop(loop: Any) -> None:
    """Give an event loop the descriptors back that it works with. What tasks had open themselves is lost.

    It may be of a class that a cell has brought; then it goes on as it can.
    """
    import asyncio
    import selectors

    if not isinstance(loop, asyncio.SelectorEventLoop) or loop.is_closed():
        return
    for name in ("_ssock", "_csock"):
        sock = getattr(loop, name, None)
        if sock is not None:
            sock.detach()
    _forgotten.append(loop._selector)  # type: ignore[attr-defined]  # noqa: SLF001
    loop._selector = selectors.DefaultSelector()  # type: ignore[attr-defined]  # noqa: SLF001
    loop._internal_fds = 0  # type: ignore[attr-defined]  # noqa: SLF001
    loop._make_self_pipe()  # type: ignore[attr-defined]  # noqa: SLF001
