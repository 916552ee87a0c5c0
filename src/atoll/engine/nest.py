"""The keeper's part in the contexts of its sandbox: it makes them when the guest asks, tells of their ends, and has
them forked into other sandboxes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from . import messages
from .livefork import LiveFork
from .settings import Settings
from .shadows import Shadows, tell
from .transplant import Place

_BIRTH, _DEATH = b"b", b"d"
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Nest:
    """Args:
    control: the channel to the guest, which never blocks.
    poll: where the keeper waits; what is registered there for contexts is given to `attend`.
    place: the sandbox.
    live: whether its guest leaves it to the keeper to make contexts.
    processes: lists all processes of the sandbox.
    """

    def __init__(
        self,
        settings: Settings,
        shadows: Shadows,
        control: socket.socket,
        poll: select.poll,
        place: Place,
        processes: Callable[[], list[int]],
        *,
        live: bool,
    ) -> None:
        self._shadows = shadows
        self._control = control
        self._poll = poll
        self._place = place
        self._unsaid: deque[dict[str, Any]] = deque()
        self._ends = -1
        self.forks = LiveFork(settings, shadows, self._tell, place, processes, live=live)
        shadows.know(place.first)
        for pidfd in shadows.contexts:
            poll.register(pidfd, select.POLLIN)

    def hear(self) -> bool:
        """What the guest says; False when it is gone, or makes no sense."""
        try:
            request, fds = messages.receive(self._control)
        except BlockingIOError:
            # There is room to say what could not be said.
            self._speak()
            return True
        except (messages.Ended, ValueError, RecursionError, OSError):
            return False
        messages.close(fds)
        if "birth" in request:
            self._bear()
        elif "held" in request:
            self.forks.held(request["held"])
        else:
            return False
        return True

    def concerns(self, fd: int) -> bool:
        return fd in self._shadows.contexts or fd == self._ends

    def attend(self, fd: int) -> None:
        """A context has ended, or something that was made for another sandbox has."""
        if fd == self._ends:
            with contextlib.suppress(BlockingIOError):
                os.read(fd, 4096)
            self._shadows.tidy()
            return
        self._poll.unregister(fd)
        self._unsaid.append(self._shadows.bury(fd))
        self._speak()

    def transplant(self, client: socket.socket, request: dict[str, Any]) -> None:
        """What is made there and ends there may come back here to be taken notice of."""
        if self._ends < 0:
            self._ends, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._poll.register(self._ends, select.POLLIN)
            signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.forks.transplant(client, request)

    def adopt(self, request: dict[str, Any], fds: list[int]) -> None:
        context = self.forks.adopt(request, fds)
        self._poll.register(context.pidfd, select.POLLIN)

    def _bear(self) -> None:
        known = set(self._shadows.contexts)
        answer = self._shadows.bear(self._place.first, self._place.uid, self._place.workdir)
        for pidfd in self._shadows.contexts.keys() - known:
            self._poll.register(pidfd, select.POLLIN)
        # If it does not take its answer, it never gets to know of the context, which ends without its guest.
        with contextlib.suppress(OSError):
            tell(self._control, _BIRTH, *answer)

    def _tell(self, kind: bytes, message: dict[str, Any], fds: list[int]) -> None:
        tell(self._control, kind, message, fds)

    def _speak(self) -> None:
        """A guest that does not listen must not stop its keeper."""
        while self._unsaid:
            try:
                tell(self._control, _DEATH, self._unsaid[0], [])
            except BlockingIOError:
                break
            except OSError:
                self._unsaid.clear()
                break
            self._unsaid.popleft()
        self._poll.register(self._control.fileno(), _READABLE | (select.POLLOUT if self._unsaid else 0))
