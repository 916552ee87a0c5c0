"""Work that a keeper has done by a child of its own: all memory that it takes goes with the child."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import kernel, messages, staging, viewpost
from .layers import Stack
from .places import Rules
from .restack import Mason, Sandbox, Wish
from .settings import BirthFailed, Settings
from .views import View

__all__ = ["record_source", "restack", "stage"]

_MOST_DESCRIPTORS = 4096

_ending: list[int] = []
"""Children that have answered."""

Outcome = tuple[dict[str, Any], Sequence[int]]
"""What to answer, and descriptors that go with it."""


def restack(settings: Settings, sandbox: Sandbox, request: dict[str, Any]) -> tuple[dict[str, Any], View | None]:
    """What to answer to a request to exchange what a sandbox stands on, and the view that it has from then on.

    Raises:
        KeyError, TypeError, ValueError: it makes no sense.
    """
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

    answer, fds = in_child(work, later)
    if "ok" not in answer:
        return answer, sandbox.view
    return answer, viewpost.unpack(fds) if answer.pop("new", False) else sandbox.view


def stage(settings: Settings, sandbox: Sandbox, client: socket.socket) -> dict[str, Any]:
    """Give a client descriptors of the workspace as the sandbox sees it, and of the layers with its changes.

    What to answer if that could not be done; nothing if it was.
    """

    def work() -> Outcome:
        fds = staging.descriptors(settings, sandbox)
        messages.send(client, {"ok": {"source": sandbox.source}}, *fds)
        return {"sent": True}, ()

    answer, _ = in_child(work)
    return {} if "sent" in answer else answer


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


def in_child(work: Callable[[], Outcome], later: Callable[[], None] = lambda: None) -> tuple[dict[str, Any], list[int]]:
    """Do some work in a fork; gives its answer and descriptors, or the error that it ended with as one.

    Nobody waits for what is to be done `later`, nor for the end of the fork.
    """
    _bury()
    ours, theirs = messages.pair()
    child = os.fork()
    if child == 0:
        ours.close()
        _tell(theirs, work, later)
    theirs.close()
    with ours:
        try:
            return messages.receive(ours)
        except messages.Ended:
            return {"error": {"code": "sandbox_error", "message": "The work was ended from outside; try again."}}, []
        finally:
            _ending.append(child)


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
        answer = {"error": {"code": getattr(error, "code", "sandbox_error"), "message": str(error)}}
    except BaseException as error:  # noqa: BLE001 - the one who waits must hear of it, and the log of the rest
        import traceback

        traceback.print_exc()
        answer = {"error": {"code": "sandbox_error", "message": f"A mistake in atoll itself: {error!r}."}}
    finally:
        with contextlib.suppress(OSError):
            messages.send(keeper, answer, *(fd for fd in fds if fd >= 0))
        _afterwards(later)
