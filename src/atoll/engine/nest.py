"""The keeper's part in the contexts of its sandbox: it makes them when the guest asks, and tells of their ends."""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import Any

from . import messages
from .shadows import Shadows, tell

_BIRTH, _DEATH = b"b", b"d"
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Nest:
    """Args:
    control: the channel to the guest, which never blocks.
    poll: where the keeper waits; what is registered there for contexts is given to `attend`.
    first: the sandbox's first process, whose user is `uid` and whose directory is `workdir`.
    """

    def __init__(
        self, shadows: Shadows, control: socket.socket, poll: select.poll, first: int, uid: int, workdir: str
    ) -> None:
        self.shadows = shadows
        self._control = control
        self._poll = poll
        self.first = first
        self.uid = uid
        self.workdir = workdir
        self._unsaid: deque[dict[str, Any]] = deque()
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
        if "birth" not in request:
            return False
        self._bear()
        return True

    def concerns(self, fd: int) -> bool:
        return fd in self.shadows.contexts

    def attend(self, fd: int) -> None:
        """A context has ended."""
        self._poll.unregister(fd)
        self._unsaid.append(self.shadows.bury(fd))
        self._speak()

    def _bear(self) -> None:
        known = set(self.shadows.contexts)
        # What it says next may be about a number that the new one gets.
        self._speak()
        answer = self.shadows.bear(self.first, self.uid, self.workdir)
        for pidfd in self.shadows.contexts.keys() - known:
            self._poll.register(pidfd, select.POLLIN)
        try:
            tell(self._control, _BIRTH, *answer)
        except OSError:
            # It does not take its answer: it never gets to know of the context, which ends without its guest.
            return

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
