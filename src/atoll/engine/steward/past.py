"""A sandbox's files as they were: copied aside for a snapshot or a twin, and back for a rollback.

A steward serves others while a process of its own copies; one copy at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from .. import kernel
from ..copying import copy_tree
from ..removal import remove_tree
from ..settings import code_of
from .wall import FILES, Readable, StartFailed, Wall

if TYPE_CHECKING:
    import socket

    from ..holders import Holder

# How long those may take to die who hold files open, and how long to wait between two looks; in seconds.
_DEATH, _MOMENT = 5.0, 0.002
COPY, ROLLBACK = "copy", "rollback"


class Keeper(Protocol):
    """What this needs of the steward that it works for."""

    def hold(self, who: object) -> None: ...
    def let_go(self, who: object) -> None: ...
    def answer(self, client: socket.socket, facts: dict[str, Any]) -> None: ...
    def refuse(self, client: socket.socket, message: str, code: str) -> None: ...
    def begin_again(self, swap: Callable[[], None]) -> None: ...
    def wait(self, what: Readable | None, seconds: float) -> bool: ...


class _Errand(NamedTuple):
    client: socket.socket
    request: Mapping[str, Any]
    pid: int
    told: int


class Past:
    """The copies of one sandbox.

    Args:
        poll: told of the descriptor on which a copy is reported.
    """

    def __init__(self, box: str, wall: Wall, keeper: Keeper, poll: select.poll) -> None:
        self._box = box
        self._wall = wall
        self._keeper = keeper
        self._poll = poll
        self._waiting: deque[tuple[socket.socket, Mapping[str, Any]]] = deque()
        self._errand: _Errand | None = None

    def ask(self, client: socket.socket, request: Mapping[str, Any]) -> None:
        """`copy` the files `into` a new directory, or `rollback` to those of another; answered when it is done."""
        self._waiting.append((client, request))
        self._next()

    def forget(self, client: socket.socket) -> None:
        """It is gone, and nobody wants what it has asked for."""
        self._waiting = deque(each for each in self._waiting if each[0] is not client)
        if self._errand is not None and self._errand.client is client:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._errand.pid, signal.SIGKILL)
            self._finish(self._errand)
            self._next()

    def hears(self, fd: int) -> bool:
        """Whether this was a report, which has been dealt with."""
        errand = self._errand
        if errand is None or errand.told != fd:
            return False
        with open(os.dup(fd), "rb") as pipe:
            report = pipe.read()
        self._finish(errand)
        try:
            self._conclude(errand, json.loads(report) if report else {"error": "it was ended from outside"})
        finally:
            self._next()
        return True

    def _next(self) -> None:
        while self._errand is None and self._waiting:
            client, request = self._waiting.popleft()
            try:
                self._begin(client, request)
            except (StartFailed, OSError) as error:
                self._keeper.let_go(self)
                self._keeper.refuse(client, str(error), code_of(error, "sandbox_error"))

    def _begin(self, client: socket.socket, request: Mapping[str, Any]) -> None:
        files = f"{self._box}/{FILES}"
        if request["op"] == COPY:
            self._keeper.hold(self)
            self._settle(force=bool(request["force"]))
            source, target = files, str(request["into"])
        else:
            source, target = str(request["from"]), f"{files}.new"
            if os.path.lexists(target):
                remove_tree(target)
        pid, told = start_copy(source, target)
        self._errand = _Errand(client, request, pid, told)
        self._poll.register(told, select.POLLIN)

    def _settle(self, *, force: bool) -> None:
        """Nobody has a file open to write to, so what is copied is whole. Raises StartFailed."""
        until = time.monotonic() + _DEATH
        while found := self._writers():
            others = [each for each in found if each.outside != self._wall.guest]
            if not force or not others or time.monotonic() > until:
                raise StartFailed(
                    f"Process {found[0].pid} ({found[0].command}) has {found[0].path} open to write to, so it cannot "
                    "be copied now; wait until it is closed, or give force=True to end that process.",
                    "busy",
                )
            for each in others:
                with contextlib.suppress(ProcessLookupError):
                    self._wall.end_writer(each)
            # Who is frozen dies when it is thawed.
            self._keeper.let_go(self)
            self._keeper.wait(None, _MOMENT)
            self._keeper.hold(self)
        self._wall.settle()

    def _writers(self) -> list[Holder]:
        try:
            return self._wall.writers()
        except TimeoutError as error:
            raise StartFailed(f"{error}, so it cannot be copied now; close some.", "busy") from error

    def _finish(self, errand: _Errand) -> None:
        self._poll.unregister(errand.told)
        os.close(errand.told)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(errand.pid, 0)
        self._errand = None
        self._keeper.let_go(self)

    def _conclude(self, errand: _Errand, report: Mapping[str, Any]) -> None:
        if "error" in report:
            self._keeper.refuse(
                errand.client, f"The files of the sandbox could not be copied: {report['error']}.", "sandbox_error"
            )
            return
        if errand.request["op"] == ROLLBACK:
            try:
                self._keeper.begin_again(self._swap)
            except (StartFailed, OSError) as error:
                self._keeper.refuse(errand.client, str(error), "sandbox_error")
                return
            self._remove_old()
        self._keeper.answer(errand.client, {"size": report["size"]})

    def _swap(self) -> None:
        files = f"{self._box}/{FILES}"
        os.rename(files, f"{files}.old.{os.getpid()}")
        os.rename(f"{files}.new", files)

    def _remove_old(self) -> None:
        """In a process of its own: there may be much of it. What it does not get done ends with the box."""
        if os.fork() == 0:
            try:
                remove_tree(f"{self._box}/{FILES}.old.{os.getppid()}")
            finally:
                os._exit(0)


def begin_with(source: str, target: str, owners: Mapping[int, int]) -> None:
    """Have the files of another sandbox in place of a new one's, at its birth.

    Raises:
        StartFailed: they cannot be copied.
    """
    remove_tree(target)
    pid, told = start_copy(source, target, owners)
    with open(told, "rb") as pipe:
        report = json.loads(pipe.read() or '{"error": "it was ended from outside"}')
    os.waitpid(pid, 0)
    if "error" in report:
        raise StartFailed(f"The files that the sandbox begins with could not be copied: {report['error']}.")


def start_copy(source: str, target: str, owners: Mapping[int, int] | None = None) -> tuple[int, int]:
    """Copy in a process of its own: gives its pid, and the descriptor from which its report is read, as JSON."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _copy(writer, source, target, owners)
    os.close(writer)
    return pid, reader


def _copy(writer: int, source: str, target: str, owners: Mapping[int, int] | None) -> NoReturn:
    report: dict[str, Any] = {}
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.close_from(3, (writer,))
        os.umask(0o077)
        _see_all()
        report = {"size": copy_tree(source, target, owners)}
    except BaseException as error:  # noqa: BLE001 - whatever it is, the steward must hear of it
        report = {"error": getattr(error, "strerror", None) or repr(error)}
    finally:
        os.write(writer, json.dumps(report).encode())
        os._exit(0)


def _see_all() -> None:
    """An ordinary user sees what it owns, whatever the modes that hostile code has given it. Where it is let."""
    if os.geteuid() == 0:
        return
    user, group = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.CLONE_NEWUSER)
    except OSError:
        return  # what it cannot read then is told
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
