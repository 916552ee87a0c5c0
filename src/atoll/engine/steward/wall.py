"""What a steward asks of the wall that it keeps. A wall that is run by a steward implements this."""

from __future__ import annotations

import os
import select
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..holders import Holder

FILES = "files"
"""The directory in a box that holds everything a sandbox has written: what `stop` keeps and a snapshot copies."""


class StartFailed(Exception):
    """A sandbox could not be made. `code` is one of `client.ERRORS`."""

    def __init__(self, message: str, code: str = "create_failed", hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class Ending(BaseException):
    """The sandbox is to end, and a wall that waits for something is to give it up."""


class Readable(Protocol):
    def fileno(self) -> int: ...


Waiting = Callable[[Readable | None, float], bool]
"""Waits until something can be read, for so many seconds at most; gives whether it can."""


def just_wait(what: Readable | None, seconds: float) -> bool:
    poll = select.poll()
    if what is not None:
        poll.register(what, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


class Wall(ABC):
    """One wall around one sandbox. Lives in the steward's process, which serves nobody while a method runs; but for
    who asks how the sandbox is, or destroys it, while the method waits by `wait`.

    Args:
        box: the directory of the sandbox on the host, with `files` in it.
        job: what the driver's `prepare` gave, as JSON has it.

    Attributes:
        facts: what the client is told when the sandbox is ready; kept in `Handle.data`. `limits` and `walls` are
            shown by `Info`.
        guest: the guest's pid on this machine; 0 where it has none.
        wait: how to wait for somebody else. Raises Ending.
    """

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        self.box = box
        self.job = job
        self.facts: dict[str, Any] = {}
        self.guest = 0
        self.wait: Waiting = just_wait

    @abstractmethod
    def start(self) -> socket.socket:
        """Start the guest, and give the SOCK_SEQPACKET socket that it takes its orders from.

        Where no descriptor can be passed into the wall, it is that of a `switchboard`. Its end means that the guest
        has ended. The guest ends when this process does. May come again after `end`, with other files: a rollback.

        Raises:
            StartFailed: it did not start; `end` and `remove` are called.
        """

    def forsake(self) -> None:  # noqa: B027 - most walls do nothing sooner for it
        """Comes before `end` when nothing is to be kept: what was written need not reach a disk any more."""

    @abstractmethod
    def end(self) -> None:
        """Kill everything behind the wall and wait until it is dead. May be called twice, and before `start`."""

    def remove(self) -> None:  # noqa: B027 - most walls have nothing there
        """Remove what there is of it outside its box. Comes after `end`."""

    def pause(self) -> None:
        """Freeze everything behind the wall. Raises OSError."""
        raise NotImplementedError

    def resume(self) -> None:
        """Thaw it. Raises OSError."""
        raise NotImplementedError

    def tend(self, now: float) -> float:
        """Look after it, at a monotonic time; gives the seconds until this is to be called again."""
        return float("inf")

    def writers(self) -> list[Holder]:
        """Who behind the wall has a file of the sandbox open to write to; asked while all is frozen.

        One is named to a caller who wants its files copied, or is ended for them. Where nobody can tell, nobody.

        Raises:
            TimeoutError: it cannot be told in a moment.
        """
        return []

    def end_writer(self, writer: Holder) -> None:
        """End one of `writers`; who is frozen may die when it is thawed. Raises ProcessLookupError."""
        os.kill(writer.outside, signal.SIGKILL)

    def settle(self) -> None:  # noqa: B027 - most walls keep files in a plain directory
        """See to it that all that was written is in the box, to be copied; all is frozen. Raises OSError."""

    def kept(self, request: Mapping[str, Any]) -> None:  # noqa: B027 - most walls have nothing to do then
        """Its maker has written it down, and waits for nothing more; with what `StewardDriver.last_words` gave."""

    orders: frozenset[str] = frozenset()
    """What `obey` knows besides what every steward does."""

    def obey(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[int]]:
        """Do something that only this kind of wall can; gives the answer, and descriptors, which are closed here.

        Raises:
            StartFailed: it cannot be done; all is as it was.
            OSError: the host refused something.
        """
        raise NotImplementedError

    def usage(self) -> dict[str, Any]:
        """The members of `Metrics` but `uptime`, as far as they can be told."""
        return {}

    def epitaph(self) -> str | None:
        """Why the guest has ended by itself, as the second half of a sentence; None where nothing is known."""
        return None
