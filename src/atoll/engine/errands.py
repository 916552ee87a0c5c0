"""Work that a keeper has done by a child of its own: all memory that it takes goes with the child.

A keeper does not wait for it: hostile processes can make the kernel hold up who looks at them. It looks whether the
child has answered, and ends it when its time is over.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import kernel, messages, staging, viewpost
from .layers import Stack
from .places import Rules
from .restack import Mason, Sandbox, Wish
from .settings import BirthFailed, Settings, code_of
from .views import View

__all__ = ["Errand", "Restacking", "in_child", "record_source", "stage"]

# How long one may take, in seconds: less than clients wait for an answer.
LONGEST = 45.0

_MOST_DESCRIPTORS = 4096

_ending: list[int] = []
"""Children that have answered."""

Outcome = tuple[dict[str, Any], Sequence[int]]
"""What to answer, and descriptors that go with it."""


class Errand:
    """Some work in a fork, which answers once with a message and descriptors.

    Nobody waits for what it is to do `later`, nor for its end.
    """

    def __init__(self, work: Callable[[], Outcome], later: Callable[[], None] = lambda: None) -> None:
        _bury()
        self._socket, theirs = messages.pair()
        self._child = os.fork()
        if self._child == 0:
            self._socket.close()
            kernel.name_process("atoll-errand")
            _tell(theirs, work, later)
        theirs.close()
        _ending.append(self._child)
        self.until = time.monotonic() + LONGEST

    def fileno(self) -> int:
        return self._socket.fileno()

    def answer(self) -> tuple[dict[str, Any], list[int]]:
        """What it has answered, or the error that it ended with as one. To be called once, when it can be read."""
        with self._socket:
            try:
                return messages.receive(self._socket)
            except messages.Ended:
                return _error("The work did not come to its end; try again.", "busy"), []

    def end(self) -> dict[str, Any]:
        """Kill it, for its time is over; gives what to answer instead."""
        with self._socket:
            _kill(self._child)
        return _error("The sandbox's processes kept this from being done in time; try again.", "busy")

    def wait(self, wait: Callable[[Errand, float], bool] | None = None) -> tuple[dict[str, Any], list[int]]:
        """Its answer, when it is there or its time is over.

        Args:
            wait: how to wait until it can be read, for so many seconds at most; what that raises ends the work.
        """
        try:
            ready = (wait or _wait)(self, max(0.0, self.until - time.monotonic()))
        except BaseException:
            self.end()
            raise
        return self.answer() if ready else (self.end(), [])


class Restacking:
    """The exchange of what a sandbox stands on: an errand that changes the sandbox's view.

    Raises:
        KeyError, TypeError, ValueError: the request makes no sense.
    """

    def __init__(self, settings: Settings, sandbox: Sandbox, request: dict[str, Any]) -> None:
        stack = Stack.from_json(request["stack"]) if request.get("stack") else None
        kind = str(request["kind"])
        wish = Wish(
            kind,
            stack,
            bool(request.get("force")),
            Rules.of(request) if kind == "rules" else None,
            str(request.get("name") or ""),
            dict(request.get("facts") or {}),
        )
        self._sandbox = sandbox
        masons: list[Mason] = []

        def work() -> Outcome:
            masons.append(Mason(settings, sandbox, wish))
            after, view = masons[0].work()
            told = {"ok": {"stack": after.to_json(), "view": view.recipe if view else None}}
            if view is None or view is sandbox.view:
                return told, ()
            return {**told, "new": True}, viewpost.pack(view)

        def later() -> None:
            for mason in masons:
                mason.clean_up()

        self.errand = Errand(work, later)

    def outcome(self, answer: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], View | None]:
        """What to answer to who wished for it, and the view that the sandbox has from now on."""
        if "ok" not in answer:
            if self._sandbox.group:
                # Who was killed while all were frozen has left them so.
                self._sandbox.group.thaw()
            return answer, self._sandbox.view
        return answer, viewpost.unpack(fds) if answer.pop("new", False) else self._sandbox.view


def stage(settings: Settings, sandbox: Sandbox, client: socket.socket) -> Errand:
    """Give a client descriptors of the workspace as the sandbox sees it, and of the layers with its changes.

    The errand answers with an error if that could not be done; with nothing to tell if it was.
    """

    def work() -> Outcome:
        fds = staging.descriptors(settings, sandbox)
        messages.send(client, {"ok": {"source": sandbox.source}}, *fds)
        return {}, ()

    return Errand(work)


def record_source(box: str, source: str, rules: Rules | None, started: float) -> int:
    """Have written down, by a child in the background, how a source was when a sandbox began to see it, unless it was.

    Gives the child's pid, or 0.
    """
    path = f"{box}/base"
    if os.path.exists(path):
        return 0
    child = os.fork()
    if child == 0:
        try:
            from .. import review

            os.nice(15)
            os.closerange(3, _MOST_DESCRIPTORS)
            matcher, ignores = (rules.matcher(), rules.ignores()) if rules else (None, None)
            review.record_base(source, path, matcher, ignores, int(started * 1e9))
        finally:
            os._exit(0)
    return child


def in_child(
    work: Callable[[], Outcome],
    later: Callable[[], None] = lambda: None,
    wait: Callable[[Errand, float], bool] | None = None,
) -> tuple[dict[str, Any], list[int]]:
    """Do some work in a fork and wait for it; gives its answer and descriptors, or the error that it ended with."""
    return Errand(work, later).wait(wait)


def _wait(errand: Errand, seconds: float) -> bool:
    return bool(select.select([errand], [], [], seconds)[0])


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _bury() -> None:
    """Take notice of children that have ended by now."""
    for child in list(_ending):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                continue
        _ending.remove(child)


def _afterwards(work: Callable[[], None]) -> NoReturn:
    """Who waited has been told: what goes wrong now is for the log."""
    try:
        work()
    except BaseException:  # noqa: BLE001 - see above
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)


def _tell(keeper: socket.socket, work: Callable[[], Outcome], later: Callable[[], None]) -> NoReturn:
    answer: dict[str, Any] = {}
    fds: Sequence[int] = ()
    # Who resumes the sandbox of a keeper that was killed must not meet us at work.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        answer, fds = work()
    except (BirthFailed, OSError) as error:
        answer = {"error": {"code": code_of(error, "sandbox_error"), "message": str(error)}}
    except BaseException as error:  # noqa: BLE001 - the one who waits must hear of it, and the log of the rest
        import traceback

        traceback.print_exc()
        answer = {"error": {"code": "sandbox_error", "message": f"A mistake in atoll itself: {error!r}."}}
    finally:
        with contextlib.suppress(OSError):
            messages.send(keeper, answer, *(fd for fd in fds if fd >= 0))
        _afterwards(later)
