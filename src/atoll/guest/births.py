"""Contexts that the keeper makes for the guest: it asks for them, and hears from the keeper how they ended."""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Callable, Dict, List, NamedTuple, Tuple

from .keeperline import DEATH, KeeperLine
from .refusal import BUSY, Refused

Exited = Callable[[int], None]


class Unable(Exception):
    """The keeper makes none here: the guest forks them itself."""


class Newborn(NamedTuple):
    """A context's process, which waits to be told what to be. `number` is the keeper's name for it."""

    number: int
    pid: int
    wire: socket.socket
    outputs: Tuple[int, int]
    page: int


class Births:
    """Args: heed: called when orders have come while the keeper's answer was waited for."""

    def __init__(self, line: KeeperLine, heed: Callable[[], None]) -> None:
        self._line = line
        self._heed = heed
        self._poll = select.poll()
        self._watched: Dict[int, Tuple[int, Exited]] = {}
        self._numbers: Dict[int, int] = {}

    def make(self) -> Newborn:
        """Raises: Unable; Refused: there are too many."""
        try:
            answer, fds = self._line.ask({"birth": True})
        except OSError as error:
            raise Refused(BUSY, "The sandbox's keeper makes no context: %s." % error) from error
        finally:
            if self._line.has_orders:
                self._heed()
        if "unable" in answer:
            raise Unable(str(answer["unable"]))
        if "busy" in answer:
            raise Refused(BUSY, str(answer["busy"]))
        return newborn(answer["number"], answer["pid"], fds)

    def watch(self, number: int, pid: int, exited: Exited) -> None:
        """Call back with the wait status, once."""
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.POLLIN)
        self._watched[number] = pidfd, exited
        self._numbers[pidfd] = number

    def died(self, message: bytes) -> None:
        """The keeper tells of an end."""
        news = json.loads(message)
        pidfd, exited = self._watched.pop(news["number"], (-1, None))
        if exited is not None:
            self._poll.unregister(pidfd)
            del self._numbers[pidfd]
            os.close(pidfd)
            exited(news["status"])

    def look(self) -> None:
        """Whoever has ended by now is told of before this returns: their keeper is about to."""
        for pidfd, _ in self._poll.poll(0) if self._watched else ():
            number = self._numbers.get(pidfd)
            while number in self._watched:
                try:
                    order = self._line.wait_for(DEATH)
                except OSError:
                    return
                self.died(order.rest)
        if self._line.has_orders:
            self._heed()


def newborn(number: int, pid: int, fds: List[int]) -> Newborn:
    wire, stdout, stderr, page = fds
    return Newborn(number, pid, socket.socket(fileno=wire), (stdout, stderr), page)
