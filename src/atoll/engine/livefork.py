"""Live forks: the contexts of a sandbox go on in other sandboxes as well, with all that they had in memory.

`hold` has the contexts stand still; `transplant` makes twins of them in sandboxes that exist already; `release` lets
them go on. The client that holds keeps its connection; when it goes, they go on. `adopt` is what one keeper asks of
another: to take over a twin that it has made.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..guest.twinning import STAY
from . import inspection, kernel, messages
from .handover import Handover, answer, ask
from .holding import Hold
from .inspection import Broken
from .losses import losses
from .originals import NotForking, Original, bring
from .prints import clean, own_memory, take
from .settings import BirthFailed, Settings
from .shadows import OPTIONS, Context, Shadows, end
from .tracing import Strayed, Task
from .transplant import Place, Surgeon

# How long contexts stand still at most when nobody comes for them, in seconds.
_STANDING = 120.0
_MOST_NAME, _MOST_CONTEXTS = 200, 64
# How often, and how long each time, all processes of a sandbox are tried to be stopped.
_TURNS, _STOPPING = 6, 0.5
_FAILURES = (OSError, Strayed, Broken, NotForking, BirthFailed)

Tell = Callable[[bytes, dict[str, Any], list[int]], None]


class LiveFork:
    """The keeper's part.

    Args:
        tell: gives the guest an order; raises OSError if it does not listen.
        place: this sandbox itself.
        processes: lists all that run behind its wall.
    """

    def __init__(
        self,
        settings: Settings,
        shadows: Shadows,
        tell: Tell,
        place: Place,
        processes: Callable[[], list[int]],
        *,
        live: bool,
    ) -> None:
        self._live = live
        self._settings = settings
        self._shadows = shadows
        self._tell = tell
        self._place = place
        self._processes = processes
        self._holder: socket.socket | None = None
        self._waits = False
        self._standing: dict[str, tuple[Context, dict[str, Any]]] = {}

    def hold(self, client: socket.socket, request: dict[str, Any]) -> None:
        """Answered by `held`."""
        if not self._live:
            raise BirthFailed("The contexts of this sandbox cannot be forked while they live.", "unsupported")
        if self._holder is not None:
            raise BirthFailed("This sandbox is being forked by somebody else.", "busy")
        self._tell(b"h", {"wait": float(request["seconds"]), "seconds": _STANDING}, [])
        self._holder, self._waits = client, True

    def held(self, report: Any) -> None:
        """The guest, who may say anything, says how its contexts stand."""
        if self._holder is None or not self._waits:
            return
        self._waits = False
        try:
            contexts, sessions = _checked(report)
            self._remember(contexts)
            busy = next((each["name"] for each in contexts if each["state"] == "busy"), None)
            if busy is not None:
                raise BirthFailed(f"Context {busy!r} runs a cell; wait for its end, or interrupt it.", "busy")
            answer = [self._describe(each) for each in contexts]
        except BirthFailed as error:
            client = self._holder
            self.release()
            _answer(client, {"error": {"code": error.code, "message": str(error)}})
        else:
            lost = [
                {"name": each, "language": "session", "live": False, "reason": "it is a shell"} for each in sessions
            ]
            _answer(self._holder, {"ok": {"contexts": [*answer, *lost]}})

    def _remember(self, reports: list[dict[str, Any]]) -> None:
        known = {context.number: context for context in self._shadows.contexts.values()}
        for report in reports:
            context = known.get(report["number"]) if report["state"] == "standing" else None
            if context is not None:
                settings = {name: report[name] for name in ("name", "cwd", "env")}
                self._standing[report["name"]] = context, settings

    def _describe(self, report: dict[str, Any]) -> dict[str, Any]:
        told = {"name": report["name"], "language": report["language"], "workdir": report["cwd"]}
        if report["state"] != "standing":
            return {**told, "live": False, "used": report["state"] != "unused", "reason": _reason(report)}
        if report["name"] not in self._standing:
            return {**told, "live": False, "used": True, "reason": "its process is gone"}
        return {**told, "live": True, "used": True, "loses": losses(self._standing[report["name"]][0].task)}

    def transplant(self, client: socket.socket, request: dict[str, Any]) -> None:
        twins = [str(each) for each in request["twins"]]
        if client is not self._holder or self._waits:
            raise BirthFailed("Only who holds the sandbox can fork it.", "invalid_input")
        with _one_processor(self._shadows):
            answer = self._transplant(twins)
        messages.send(client, {"ok": {"twins": answer}})

    def _transplant(self, twins: Sequence[str]) -> list[dict[str, Any]]:
        told: dict[str, dict[str, str]] = {twin: {} for twin in twins}
        places = self._ask_places(twins)
        originals: dict[str, Original] = {}
        prints: dict[str, Task] = {}
        failed: dict[str, str] = {}
        try:
            try:
                for name, (context, _) in self._standing.items():
                    if failed:
                        # Nobody wants some of them only, and each that is hostile would cost the keeper its patience.
                        failed[name] = "another context could not be forked"
                        continue
                    with _noted(failed, name):
                        originals[name] = bring(context)
                self._take_prints(originals, prints, failed)
            finally:
                for original in originals.values():
                    with contextlib.suppress(OSError):
                        original.let_on()
            for name in tuple(prints):
                with _noted(failed, name):
                    self._spread(originals[name], prints.pop(name), self._standing[name][1], places, told)
        finally:
            for left in prints.values():
                end(left.id)
        for name in self._standing:
            for twin in twins:
                told[twin].setdefault(name, failed.get(name, "it could not be made"))
        return [{"id": twin, "contexts": [_story(*each) for each in told[twin].items()]} for twin in twins]

    def _take_prints(self, originals: dict[str, Original], prints: dict[str, Task], failed: dict[str, str]) -> None:
        """Nobody of the sandbox runs meanwhile: the shadows do, in memory that is theirs."""
        if not originals:
            return
        stopped = frozenset(original.task.id for original in originals.values())
        for turn in reversed(range(_TURNS)):
            try:
                with Hold(self._processes, stopped, _STOPPING):
                    for name, original in originals.items():
                        with _noted(failed, name):
                            prints[name] = take(original.context)
                return
            except BirthFailed as error:
                # Who waits for a child to exec does not stop, nor does the child meanwhile: the next time it has.
                if turn == 0:
                    failed.update(dict.fromkeys(originals, str(error)))

    def _spread(
        self,
        original: Original,
        task: Task,
        settings: dict[str, Any],
        places: dict[str, Place | str],
        told: dict[str, dict[str, str]],
    ) -> None:
        """Make a twin in each place of one print, which is the last twin's own in the end."""
        name = settings["name"]
        handover = Handover(
            self._settings.layout, _processors, lambda twin, reason: told[twin].__setitem__(name, reason)
        )
        wanted = [place for place in places.values() if isinstance(place, Place)]
        for twin, place in places.items():
            if isinstance(place, str):
                told[twin][name] = place
        spent = False
        try:
            context = original.context
            surgeon = Surgeon(self._settings, original, clean(task, context.page, own_memory(context.task)))
            for each in wanted:
                failed: dict[str, str] = {}
                spent = each is wanted[-1]
                with _noted(failed, each.id):
                    handover.offer(each.id, surgeon.make(each, last=spent), settings)
                for twin, reason in failed.items():
                    told[twin][name] = reason
        finally:
            handover.finish()
            if not spent:
                end(task.id)

    def _ask_places(self, twins: Sequence[str]) -> dict[str, Place | str]:
        """Where each twin is; or why there is no place for one."""
        found: dict[str, Place | str] = {}
        asked: dict[str, socket.socket] = {}
        for twin in twins:
            with _noted(found, twin):
                asked[twin] = ask(self._settings.layout, twin, {"op": "place"})
        for twin, keeper in asked.items():
            with _noted(found, twin):
                facts = answer(keeper)
                place = Place(twin, facts["first"], facts["uid"], facts["workdir"])
                found[twin] = place if facts["live"] else "its contexts are not made by its keeper"
        return found

    def place(self, client: socket.socket, request: dict[str, Any]) -> None:
        place = self._place
        facts = {"first": place.first, "uid": place.uid, "workdir": place.workdir, "live": self._live}
        messages.send(client, {"ok": facts})

    def adopt(self, request: dict[str, Any], fds: list[int]) -> Context:
        """Take over a twin that another keeper has made; gives it.

        Raises:
            BirthFailed: it is none.
            OSError: it is gone, or the guest does not listen.
        """
        task, shadow = int(request["task"]), int(request["shadow"])
        facts = inspection.status(task)
        namespaces = {inspection.identity(f"/proc/{each}/ns/pid") for each in (task, self._place.first)}
        if int(facts["PPid"]) != shadow or len(namespaces) != 1 or len(fds) != 4:
            raise BirthFailed("What was brought is no twin.", "invalid_input")
        taken = Task(shadow, OPTIONS)
        try:
            taken.interrupt()
            taken.halt(taken.wait())
            os.kill(shadow, signal.SIGCONT)
            taken.begin()
            context = Context(task, int(facts["NSpid"].split()[-1]), taken)
            self._shadows.add(context, fds[3])
            told = {"number": context.number, "pid": context.pid, **request["settings"]}
            self._tell(b"a", told, [os.dup(fd) for fd in fds])
        except BaseException:
            for pidfd in [each for each, known in self._shadows.contexts.items() if known.task == task]:
                os.close(pidfd)
                del self._shadows.contexts[pidfd]
            end(shadow)
            raise
        return context

    def release(self) -> None:
        """Let them go on."""
        self._holder, self._waits = None, False
        for context, _ in self._standing.values():
            with contextlib.suppress(OSError):
                kernel.signal_thread(context.task, context.task, STAY)
        self._standing.clear()
        with contextlib.suppress(OSError):
            self._tell(b"r", {}, [])

    def left(self, client: socket.socket) -> None:
        """A client is gone."""
        if client is self._holder:
            self.release()


_processors: set[int] = set()


@contextlib.contextmanager
def _one_processor(shadows: Shadows) -> Iterator[None]:
    """With tracer and traced on one processor, a stop costs a third."""
    _processors.clear()
    _processors.update(os.sched_getaffinity(0))
    chosen = {min(_processors)}
    tasks = [0, *(context.shadow.id for context in shadows.contexts.values())]
    try:
        for task in tasks:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(task, chosen)
        yield
    finally:
        for task in tasks:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(task, _processors)


@contextlib.contextmanager
def _noted(failed: dict[str, Any], *names: str) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        failed.update(dict.fromkeys(names, str(error)))


def _reason(report: dict[str, Any]) -> str:
    if report["language"] != "python":
        return "only Python contexts can be forked while they live"
    if report["state"] == "unused":
        return "it has run nothing"
    return str(report.get("reason") or "it was not made by the keeper")[:_MOST_NAME]


def _checked(report: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Raises: BirthFailed: it is not what a guest says."""
    try:
        contexts = [_checked_context(each) for each in report["contexts"][:_MOST_CONTEXTS]]
        sessions = [str(each)[:_MOST_NAME] for each in report["sessions"][:_MOST_CONTEXTS]]
    except (KeyError, TypeError, AttributeError) as error:
        raise BirthFailed("The guest does not say how its contexts stand.", "sandbox_error") from error
    return contexts, sessions


def _checked_context(each: dict[str, Any]) -> dict[str, Any]:
    env = each.get("env") or {}
    return {
        **{name: str(each[name])[:_MOST_NAME] for name in ("name", "language", "state")},
        "cwd": str(each["cwd"])[:4096],
        "env": {str(name): str(value) for name, value in env.items()},
        "number": each.get("number"),
        "reason": each.get("reason"),
    }


def _answer(client: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        messages.send(client, message)


def _story(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "live": False, "reason": reason} if reason else {"name": name, "live": True}
