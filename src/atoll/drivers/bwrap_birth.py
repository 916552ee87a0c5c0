"""From an order to a guest that waits for clients behind bubblewrap."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ..engine import kernel, messages, viewpost
from ..engine.settings import BirthFailed
from ..engine.steward.wall import StartFailed
from ..engine.views import View
from .bwrap_world import Ends, Order, build

_BIRTH = 30.0
_SAID = 2000


class Born(NamedTuple):
    """What came of it.

    Args:
        monitor: the pid of bubblewrap itself, this process's child, which ends with the guest.
        guest, watched: the guest's pid, and a descriptor that tells of its end.
        control: the socket that it takes its orders from.
        told: what the sandbox is like, as `bwrap_world` says.
    """

    monitor: int
    guest: int
    watched: int
    control: socket.socket
    told: dict[str, Any]
    view: View | None


def bear(order: Order, connect: Callable[[int], None] | None) -> Born:
    """Start bubblewrap and wait until the guest is there. `connect` gives the network of a process a way out.

    Raises:
        StartFailed: it did not begin; children of this process are left, to be ended.
    """
    ours, theirs = messages.pair()
    said = os.memfd_create("said", os.MFD_CLOEXEC)
    try:
        with theirs:
            built = _launch(order, theirs.fileno(), said)
        guest = _pid_of_guest(built.reader)
        watched = _watch(guest)
        if connect is not None and guest:
            _connect(connect, guest, said)
        os.close(built.go)
        _await_guest(ours, said)
    finally:
        os.close(said)
    return Born(built.monitor, guest, watched, ours, built.told, built.view)


class _Built(NamedTuple):
    """A world with bubblewrap in it. `reader` is where the guest's pid is read; who closes `go` has it go on."""

    monitor: int
    told: dict[str, Any]
    view: View | None
    reader: int
    go: int


def _launch(order: Order, control: int, said: int) -> _Built:
    line, far = messages.pair()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    wait, go = os.pipe2(os.O_CLOEXEC)
    monitor = os.fork()
    if monitor == 0:
        os.close(go)
        _become(order, far, Ends(control, writer, wait), said)
    os.close(writer)
    os.close(wait)
    far.close()
    with line:
        line.settimeout(_BIRTH)
        try:
            answer, fds = messages.receive(line)
        except (messages.Ended, TimeoutError):
            answer, fds = {"failed": "The process that was to become bubblewrap died.", "code": "create_failed"}, []
    if "built" not in answer:
        os.close(reader)
        os.close(go)
        raise StartFailed(str(answer["failed"]), str(answer["code"]))
    return _Built(monitor, answer["built"], viewpost.unpack(fds), reader, go)


def _become(order: Order, line: socket.socket, ends: Ends, said: int) -> NoReturn:
    """In the fork."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 1)
        os.dup2(said, 2)
        build(order, line, ends)
    finally:
        os._exit(1)


def _pid_of_guest(reader: int) -> int:
    """Bubblewrap tells it as JSON; 0 where it died first."""
    with open(reader, "rb") as pipe:
        said = pipe.read()
    try:
        return int(json.loads(said)["child-pid"])
    except (ValueError, KeyError, TypeError):
        return 0


def _watch(pid: int) -> int:
    try:
        return os.pidfd_open(pid) if pid else -1
    except ProcessLookupError:
        return -1


def _connect(connect: Callable[[int], None], guest: int, said: int) -> None:
    """The tools that this takes leave their words where bubblewrap does."""
    own = os.dup(2)
    os.dup2(said, 2)
    try:
        connect(guest)
    except BirthFailed as failed:
        raise StartFailed(f"{failed} {_words(said)}".strip(), failed.code) from None
    finally:
        os.dup2(own, 2)
        os.close(own)


def _await_guest(control: socket.socket, said: int) -> None:
    control.settimeout(_BIRTH)
    try:
        answer, _ = messages.receive(control)
    except TimeoutError:
        raise StartFailed("The sandbox did not come up in time.") from None
    except (messages.Ended, ValueError):
        raise _explained(_words(said)) from None
    if "closed" not in answer:
        raise StartFailed(str(answer.get("failed", answer)))


def _words(said: int) -> str:
    return os.pread(said, _SAID, 0).decode(errors="replace").strip()


def _explained(words: str) -> StartFailed:
    """What bubblewrap said before it gave up, and what to do about it."""
    from ..engine.probe import namespace_fix

    if any(why in words for why in ("Operation not permitted", "Permission denied", "No space left")):
        message = f"bubblewrap was refused something by this host: {words}"
        return StartFailed(message, "wall_unavailable", namespace_fix())
    return StartFailed(f"bubblewrap did not start the guest: {words or 'it died without a word'}")
