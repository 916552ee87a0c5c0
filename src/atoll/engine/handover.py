"""From one keeper to another: questions, and twins that change hands. Several at a time, for each takes its while."""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from . import messages
from .layout import Layout
from .settings import BirthFailed
from .shadows import end
from .transplant import Twin

_TIMEOUT = 5.0
_AT_ONCE = 4


def ask(places: Layout, sandbox: str, request: dict[str, Any], fds: tuple[int, ...] = ()) -> socket.socket:
    """Ask another keeper something; `answer` gives what it says.

    Raises:
        OSError: nobody listens.
    """
    keeper = messages.connect(places.socket(sandbox))
    try:
        keeper.settimeout(_TIMEOUT)
        messages.send(keeper, request, *fds)
    except BaseException:
        keeper.close()
        raise
    return keeper


def answer(keeper: socket.socket) -> dict[str, Any]:
    """What it says to what it was asked, once.

    Raises:
        OSError: it does not say anything.
        BirthFailed: it refuses.
    """
    with keeper:
        try:
            said, came = messages.receive(keeper)
        except messages.Ended:
            raise ConnectionError("the sandbox has ended") from None
    messages.close(came)
    if "ok" not in said:
        raise BirthFailed(str(said.get("error", {}).get("message", said)))
    return dict(said["ok"])


class _Offer(NamedTuple):
    sandbox: str
    twin: Twin
    keeper: socket.socket


class Handover:
    """Twins on their way to other keepers.

    Args:
        processors: those that a twin may run on.
        told: called for each sandbox, with the reason why it has no twin, or with nothing.
    """

    def __init__(self, places: Layout, processors: set[int], told: Callable[[str, str], None]) -> None:
        self._places = places
        self._processors = processors
        self._told = told
        self._offers: deque[_Offer] = deque()

    def offer(self, sandbox: str, twin: Twin, settings: dict[str, Any]) -> None:
        """Have another keeper take a twin, which makes its first step only then."""
        request = {"op": "adopt", "shadow": twin.shadow.id, "task": twin.task.id, "settings": settings}
        try:
            # It stops for good before its next instruction, and who sees it stopped takes it over.
            os.kill(twin.shadow.id, signal.SIGSTOP)
            twin.shadow.detach()
            self._offers.append(_Offer(sandbox, twin, ask(self._places, sandbox, request, twin.ends.of_guest)))
        except OSError as error:
            self._give_up(sandbox, twin, error)
        finally:
            twin.ends.close(twin.ends.of_guest)
        self.finish(_AT_ONCE)

    def finish(self, left: int = 0) -> None:
        """Wait until all but so many have been taken."""
        while len(self._offers) > left:
            sandbox, twin, keeper = self._offers.popleft()
            try:
                answer(keeper)
                os.sched_setaffinity(twin.task.id, self._processors)
                twin.task.detach()
                self._told(sandbox, "")
            except (OSError, BirthFailed) as error:
                self._give_up(sandbox, twin, error)

    def _give_up(self, sandbox: str, twin: Twin, error: Exception) -> None:
        for task in (twin.task, twin.shadow):
            end(task.id)
        self._told(sandbox, str(error))
