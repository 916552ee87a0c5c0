"""A context inside WebAssembly: what Python there does from its start to its end.

There are no sockets there, so that all requests, answers and output go through one open file, the portal, whose other
end is the host. `prepare` and `settle` run once, in an instance that others are copied from, and the rest in each copy.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from time import monotonic
from typing import Any, BinaryIO, Dict, List, NoReturn, Optional, Tuple

from ..wire.frames import Frame
from . import borrowed, freezing
from .awakening import Memory
from .cellstreams import Streams
from .config import Config
from .desk import Desk
from .freezer import Job
from .fresh import find_own_modules, reseed, set_interpreter
from .interpreter import Interpreter
from .port import Bytes, HungUp, Port
from .shared import RUNNING
from .situation import set_environment
from .waiting import install as install_waiting

PORTAL = 100
SERVE = "_atoll_serve"
PUT, RUNS, ANSWER, WANTS, FORK, SAY = b"F", b"R", b"A", b"W", b"K", b"S"
"""What a message to the host begins with: a frame for the client, whether something runs that can be interrupted,
the answer to a request, that the next frame of the client is wanted, that a copy is to be made, and what a copy has to
say to who has made it."""

_LENGTH = struct.Struct("<I")
_READ = 1 << 16


class Portal(Port):
    """The way to the client, whoever that is just now."""

    def put(self, kind: int, payload: Bytes, stream: int = 0) -> None:
        try:
            tell(PUT + bytes((kind, stream)) + bytes(payload))
        except OSError as error:
            raise HungUp from error

    def frame(self) -> Optional[Frame]:
        tell(WANTS)
        message = hear()
        return Frame(0, message[0], message[1], message[2:]) if message else None

    def settle(self) -> None:
        """There are no processes."""


def tell(message: bytes) -> None:
    os.write(PORTAL, message)


def hear() -> bytes:
    """The next message; it may take its time."""
    data = os.read(PORTAL, _READ)
    (length,) = _LENGTH.unpack_from(data)
    parts: List[bytes] = [data[_LENGTH.size :]]
    missing = length - len(parts[0])
    while missing > 0:
        parts.append(os.read(PORTAL, missing))
        missing -= len(parts[-1])
    return b"".join(parts)


class _Page:
    """Stands for the page that other contexts share with their guest."""

    def __setitem__(self, at: int, value: int) -> None:
        if at == RUNNING:
            tell(RUNS + bytes((value,)))


class _Shared:
    """The same, for `Shared`."""

    def __init__(self) -> None:
        self.page = _Page()

    @property
    def running(self) -> bool:
        return False

    @running.setter
    def running(self, value: bool) -> None:
        self.page[RUNNING] = value


def prepare(cloudpickle: str) -> None:
    """In the instance that others are copied from: have everything that they need."""
    if cloudpickle:
        borrowed.lend(cloudpickle)
        borrowed.cloudpickle()
    freezing.spare = _copied
    install_waiting()
    find_own_modules()


def settle(source: str, python: str) -> None:
    """The last thing that is done there. `serve` is called by the name that it leaves in `sys`, since from now on this
    is the Python that cells find."""
    sys.path[:] = [place for place in sys.path if place not in ("", source)]
    set_interpreter(Config(python=python))
    shared: Any = _Shared()
    portal: Any = Portal()
    streams = Streams(portal)
    streams.install()
    interpreter = Interpreter(streams, shared)
    setattr(sys, SERVE, lambda: _serve(portal, shared, streams, interpreter))


def _copied(job: Job, file: BinaryIO, deadline: float) -> Tuple[Dict[str, Any], Optional[str], str]:
    """As `freezing.spare` is described: the host makes a copy of all that runs here."""
    tell(FORK + json.dumps(deadline - monotonic()).encode("ascii"))
    outcome = json.loads(hear())
    if outcome is not None:
        said, current, death = outcome
        return said, current, death
    try:
        freezing.write(job, file, lambda message: tell(SAY + json.dumps(message).encode("ascii") + b"\n"))
    finally:
        os._exit(0)


def _serve(portal: Any, shared: Any, streams: Streams, interpreter: Interpreter) -> NoReturn:
    """In a copy: be told what to be, and serve until the host ends it."""
    delattr(sys, SERVE)
    start = json.loads(hear())
    _be_different()
    set_environment(start["env"])
    os.chdir(start["cwd"])
    memory = Memory(start["state"], start["frozen"])
    desk = Desk(interpreter, shared, memory)
    answer = b""
    while True:
        tell(ANSWER + answer)
        request: Dict[str, Any] = json.loads(hear())
        do = request.get("do", "code")
        if do == "dress":
            memory.dress(request["env"])
            answer = b""
            continue
        if do == "code":
            interpreter.count += 1
        desk.wake(do)
        try:
            answer = desk.answer(do, request, portal)
        except HungUp:
            answer = b""  # nobody is there to hear it
        streams.begin(None)


def _be_different() -> None:
    """All copies would draw the same numbers: here nothing tells Python that it was copied."""
    reseed()
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
