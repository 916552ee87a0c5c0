"""A context's process, which runs an instance: a fork of the guest, or one that was forked before anybody wanted it."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..engine import messages
from ..engine.steward.bounds import Bounds
from ..guest import contextprocess, inwasm, packets
from ..guest.config import Config
from ..guest.contextprocess import BROKEN, Ends
from ..guest.contextstart import ContextSettings, Started
from ..guest.descriptors import pipe
from ..guest.machine import Machine
from ..guest.shared import Shared
from . import wasm_confine
from .wasm_bridge import Bridge
from .wasm_engine import explain

if TYPE_CHECKING:
    from .wasm_nursery import Nursery

_SERVE = f'__import__("sys").{inwasm.SERVE}()'
_FIRST_TO_DIE = b"1000"


class Terms(NamedTuple):
    """What a context is held to: the bytes of memory that it may have, and the filter of its system calls."""

    memory: int
    code: bytes


def become(nursery: Nursery, terms: Terms, config: Config, env: dict[str, str], ends: Ends, frozen: str) -> NoReturn:
    """In a fork of the guest: be a context whose Python runs in a copy of the instance."""

    def begin() -> dict[str, Any]:
        return _settle(nursery, bridge, terms.code, Brief(config, env, frozen))

    try:
        _leave_family(ends)
        nursery.instance.limit_memory(terms.memory)
        bridge = Bridge(ends, begin)
        _run(nursery, bridge)
    finally:
        os._exit(BROKEN)


class Brief(NamedTuple):
    """What a context is to be."""

    config: Config
    env: dict[str, str]
    frozen: str


def _leave_family(ends: Ends) -> None:
    contextprocess.reset_signals()
    os.setsid()
    contextprocess.connect(ends)


def _run(nursery: Nursery, bridge: Bridge) -> None:
    nursery.wasi.hears, nursery.wasi.says = bridge.hears, bridge.says
    try:
        nursery.instance.turn(_SERVE)
    except BaseException as error:  # noqa: BLE001 - it must not unwind into the guest's code
        explain(error)


def _settle(nursery: Nursery, bridge: Bridge, code: bytes, brief: Brief) -> dict[str, Any]:
    """Have the files of the sandbox, close the second wall, and give what the instance has to know."""
    root, state = brief.config.root, brief.config.state_directory()
    nursery.show(root, state)
    start = {
        "env": {**brief.config.environment(), **brief.env},
        "cwd": _inside(os.getcwd(), root),
        "state": nursery.state,
        "frozen": f"{nursery.state}/{os.path.basename(brief.frozen)}" if brief.frozen else "",
    }
    wasm_confine.confine((root, state), nursery.library, code)
    _listen(nursery, bridge)
    return start


class Parked:
    """The process of a context that nobody has wanted yet. Its instance has begun, and waits to be told what to be."""

    def __init__(self, nursery: Nursery, memory: int) -> None:
        self.memory = memory
        self._made: list[int] = []
        self._wire, theirs = packets.pair()
        self._shared = Shared()
        self._outputs, ends = _pipes(self._made)
        code = wasm_confine.program(os.uname().machine)
        self._pid = os.fork()
        if self._pid == 0:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            _wait(nursery, Terms(memory, code), Ends(theirs, null, *ends, self._outputs, self._shared))
        theirs.close()
        for fd in ends:
            os.close(fd)

    @property
    def kept(self) -> tuple[int, ...]:
        """Descriptors that whoever has this must not close."""
        return (self._wire.fileno(), *self._outputs)

    def start(self, machine: Machine, settings: ContextSettings, box: str, limits: dict[str, Any]) -> Started | None:
        """Have it be a context, in the directory that this process is in; None where it is of no use any more."""
        order = {
            "config": machine.config._asdict(),
            "env": settings.env,
            "frozen": settings.frozen,
            "box": box,
            "limits": limits,
        }
        here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            messages.send(self._wire, order, here)
        except (OSError, ValueError):
            return None
        finally:
            os.close(here)
        self._wire.setblocking(False)
        pid = self._pid
        watch = machine.reaper.watch
        return Started(self._wire, pid, self._outputs, self._shared, lambda exited: watch(pid, exited))


def _pipes(made: list[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Ends to read from, and ends to write to, of standard output and standard error."""
    first, second = pipe(made), pipe(made)
    return (first[0], second[0]), (first[1], second[1])


def _wait(nursery: Nursery, terms: Terms, ends: Ends) -> NoReturn:
    """In the process that is parked."""

    def begin() -> dict[str, Any]:
        return _settle(nursery, bridge, terms.code, _told(ends.wire))

    try:
        _leave_family(ends)
        nursery.instance.limit_memory(terms.memory)
        bridge = Bridge(ends, begin)
        _run(nursery, bridge)
    finally:
        os._exit(BROKEN)


def _told(wire: socket.socket) -> Brief:
    """Wait to be told, and join the sandbox: what its guest was put under before it forks others, this one was not."""
    try:
        order, (here,) = messages.receive(wire)
    except (messages.Ended, OSError):
        os._exit(0)
    os.fchdir(here)
    os.close(here)
    score, kills = Bounds(os.path.basename(order["box"]), order["box"], order["limits"]).enter()
    os.pwrite(score, _FIRST_TO_DIE, 0)
    for fd in (score, kills):
        if fd is not None:
            os.close(fd)
    return Brief(Config(**order["config"]), order["env"], order["frozen"])


def _inside(path: str, root: str) -> str:
    """How the instance calls a path below its root."""
    return os.path.normpath("/" + os.path.relpath(path, root))


def _listen(nursery: Nursery, bridge: Bridge) -> None:
    """Have SIGINT interrupt what runs in the instance, whether that computes, sleeps or waits for an answer."""
    heard, hear = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    nursery.wasi.is_interrupted = nursery.is_interrupted
    nursery.wasi.wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def interrupted(_number: int, _frame: object) -> None:
        nursery.interrupt()
        try:
            os.write(wake, b"\0")
        except BlockingIOError:
            pass  # there is one already that wakes it
        bridge.interrupt()

    def stir() -> None:
        """While the instance computes, no handler of Python's is called: it has to be brought to the host first."""
        while select.select([heard], [], [])[0]:
            os.read(heard, 1 << 12)
            nursery.instance.stir()

    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    threading.Thread(target=stir, daemon=True).start()
    signal.signal(signal.SIGINT, interrupted)
    signal.set_wakeup_fd(hear, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
