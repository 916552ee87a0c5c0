"""The client's side of a steward: a driver whose walls are kept by one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from ...driver import Driver, Register
from ...errors import (
    AtollError,
    Busy,
    CreateFailed,
    DiskFull,
    InvalidInput,
    ProtocolError,
    SandboxError,
    SandboxGone,
    Unresponsive,
    Unsupported,
    WallUnavailable,
)
from ...home import make_private, state_dir
from ...io import IO, Stream
from ...types import Handle, Info, Metrics, Spec, Status
from .. import messages
from ..removal import remove_tree
from ..settings import started_at
from .steward import SOCKET, kept_until, word_of_end
from .wall import FILES

_PATIENCE = 120.0
# For what depends on how much a sandbox has written. Its end, and that of its steward, are noticed at once.
COPYING = 6 * 3600.0
ERRORS: dict[str, type[AtollError]] = {
    "unsupported": Unsupported,
    "busy": Busy,
    "disk_full": DiskFull,
    "create_failed": CreateFailed,
    "wall_unavailable": WallUnavailable,
    "invalid_input": InvalidInput,
}
_METRICS = tuple(name for name in Metrics._fields if name != "uptime")


class StewardDriver(Driver):
    """A driver whose sandboxes are directories with a steward each. A subclass says what goes into one.

    `<state directory>/<driver>/<id>/` is the box of a sandbox; what it has written is in `files` there.
    """

    wall: ClassVar[str]
    """Where the `Wall` of the steward is: "module:name"."""

    warm: ClassVar[bool] = False
    """Whether stewards are forked from a process that stays for the next ones. One is needed for a `ForkedWall`."""

    def __init__(self, io: IO) -> None:
        super().__init__(io)
        self._unregistered: dict[str, contextlib.ExitStack] = {}

    @abstractmethod
    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        """Furnish a box and give what the wall is built from, as JSON. May block; runs in a thread.

        What it makes outside the box is registered nowhere yet: when it raises, it leaves nothing. Where the spec has
        a snapshot, what it puts into `files` is replaced by that before the wall starts.

        Raises:
            Unsupported: the spec asks for what this wall cannot honour; nothing was started.
            WallUnavailable, CreateFailed: it cannot be made.
        """

    def warmth(self) -> tuple[str, str]:
        """What that process has to do before the first fork: a function, "module:name", and the text it is called with.

        It may take its time, and what it raises is told to who wants a sandbox. Nothing, where both are empty.
        """
        return "", ""

    def abandon(self, box: str, job: Mapping[str, Any]) -> None:
        """Remove what `prepare` made outside of a box whose steward never started. May block."""

    def sweep(self, handle: Handle, box: str) -> None:
        """Remove what a steward that was killed has left outside of the box. May block, and be called in vain."""

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        return await self._make(spec, register, resume)

    async def _make(
        self,
        spec: Spec,
        register: Register | None,
        resume: Handle | None = None,
        begin: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> Handle:
        """`begin` is what its files are copied from: the directory `files`, and whose they are, `uid`, if known.

        `more` is for the wall. Where nobody registers it, it ends with this process at the latest.
        """
        name, box = self._new_box() if resume is None else (resume.id, self.box(resume))
        job = await self.io.in_thread(lambda: self._furnish(spec, box, resume))
        return await self._birth(name, box, spec, {**job, **more}, register, begin)

    def _new_box(self) -> tuple[str, str]:
        """The id and the directory of a sandbox that is to be."""
        name = f"{self.name}-{os.urandom(6).hex()}"
        return name, self.place(name)

    def _furnish(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        if resume is None:
            make_private(box)
            os.mkdir(f"{box}/{FILES}", 0o700)
        try:
            return self.prepare(spec, box, resume)
        except BaseException:
            if resume is None:
                remove_tree(box)
            raise

    async def _birth(
        self,
        name: str,
        box: str,
        spec: Spec,
        job: dict[str, Any],
        register: Register | None,
        begin: Mapping[str, Any] | None,
    ) -> Handle:
        """Start the steward, and let it live once the sandbox is written down."""
        order = self._order(box, spec, job)
        order["begin"] = begin and {"files": begin["files"], "owners": _owners(begin, job)}
        with contextlib.ExitStack() as line:
            ours = line.enter_context(await self.io.in_thread(lambda: self._start(order)))
            facts, _ = await self._answer(ours, "ready", COPYING if begin else _PATIENCE)
            handle = Handle(self.name, name, {**facts, "box": box})
            if register is None:
                # Never told to keep it, its steward ends it when this connection does.
                self._unregistered[name] = line.pop_all()
                return handle
            register(handle)
            await self._ask_on(ours, handle, {"op": "keep", **self.last_words(spec)})
        return handle

    def last_words(self, spec: Spec) -> dict[str, Any]:
        """What the wall is told when its sandbox is written down."""
        return {}

    def _order(self, box: str, spec: Spec, job: dict[str, Any]) -> dict[str, Any]:
        """What a steward is told."""
        return {
            "wall": self.wall,
            "box": box,
            "job": {name: value for name, value in job.items() if name != "env"},
            "env": job.get("env"),
            "lifetime": spec.lifetime,
            "path": [place for place in sys.path if place],
        }

    def _start(self, order: dict[str, Any]) -> socket.socket:
        """Start a steward; gives the line on which it says that it is ready. May block for a moment."""
        ours, theirs = messages.pair()
        try:
            with theirs:
                _start(order, theirs, self.warmth() if self.warm else None)
        except BaseException:
            ours.close()
            self.abandon(order["box"], order["job"])
            if not kept_until(order["box"]):
                remove_tree(order["box"])
            raise
        return ours

    def box(self, handle: Handle) -> str:
        """The directory of a sandbox."""
        path = handle.data.get("box")
        return path if isinstance(path, str) else self.place(handle.id)

    def place(self, name: str) -> str:
        """Where the box of a sandbox goes."""
        return os.path.join(state_dir(), self.name, name)

    async def open_guest(self, handle: Handle) -> Stream:
        _, fds = await self._ask(handle, {"op": "open"})
        if len(fds) != 1:
            raise ProtocolError("The sandbox's steward gave no stream.")
        return Stream(self.io, socket.socket(fileno=fds[0]))

    async def status(self, handle: Handle) -> Status:
        try:
            answer, _ = await self._ask(handle, {"op": "status"})
        except SandboxGone:
            return "stopped" if kept_until(self.box(handle)) > time.time() else "gone"
        return "paused" if answer.get("status") == "paused" else "running"

    async def describe(self, handle: Handle, info: Info) -> Info:
        described = await super().describe(handle, info)
        data = handle.data
        return described._replace(
            limits=data.get("limits", {}), walls=tuple(data.get("walls", ())), view=data.get("view")
        )

    async def ending(self, handle: Handle) -> str | None:
        return _why(self.box(handle))

    async def set_lifetime(self, handle: Handle, seconds: float) -> None:
        await self._ask(handle, {"op": "lifetime", "seconds": seconds})

    async def metrics(self, handle: Handle) -> Metrics:
        answer, _ = await self._ask(handle, {"op": "metrics"})
        return Metrics(uptime=answer["uptime"], **{name: answer.get(name) for name in _METRICS})

    async def pause(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "pause"})

    async def resume(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "resume"})

    async def keep(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "checkpoint"})

    async def stop(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "stop"})

    async def destroy(self, handle: Handle) -> None:
        line = self._unregistered.pop(handle.id, None)
        if line is not None:
            line.close()
        kept = True
        try:
            await self._ask(handle, {"op": "destroy"})
        except SandboxGone:
            kept = False  # the steward has ended already; what is left is swept up here
        await self.io.in_thread(lambda: self._sweep(handle, left=not kept))

    def _sweep(self, handle: Handle, *, left: bool) -> None:
        """Remove all that a steward may have `left`; one that has answered leaves only its word."""
        box = self.box(handle)
        try:
            if left:
                _end_steward(handle)
                self.sweep(handle, box)
            if os.path.lexists(box) or (left and os.path.exists(os.path.dirname(box))):
                remove_tree(box)  # a steward that was just ended may have got half of it done
            with contextlib.suppress(FileNotFoundError):
                os.unlink(word_of_end(box))
        except OSError as error:
            raise SandboxError(f"What is left of sandbox {handle.id} cannot be removed: {error}.") from error

    async def _hold(self, handle: Handle) -> socket.socket:
        """Have everything in it stand still for as long as the socket is open."""
        sock = self._reach(handle)
        try:
            await self._ask_on(sock, handle, {"op": "hold"})
        except BaseException:
            sock.close()
            raise
        return sock

    async def _ask(
        self, handle: Handle, request: dict[str, Any], patience: float = _PATIENCE, fds: int = 1
    ) -> tuple[dict[str, Any], list[int]]:
        """One question to the steward; so many descriptors at most come with the answer.

        Raises:
            SandboxGone: nobody keeps this sandbox any more.
            Unresponsive: its steward cannot be reached from here; that says nothing about the sandbox.
        """
        with self._reach(handle) as sock:
            return await self._ask_on(sock, handle, request, patience, fds)

    async def _ask_on(
        self, sock: socket.socket, handle: Handle, request: dict[str, Any], patience: float = _PATIENCE, fds: int = 1
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            await self.io.send(sock, messages.encode(request))
        except OSError:
            raise self._gone(handle) from None
        try:
            return await self._answer(sock, "ok", patience, fds)
        except SandboxGone:
            raise self._gone(handle) from None

    def _reach(self, handle: Handle) -> socket.socket:
        try:
            return messages.connect(f"{self.box(handle)}/{SOCKET}")
        except messages.NOBODY:
            raise self._gone(handle) from None
        except OSError as error:
            raise Unresponsive(f"The steward of sandbox {handle.id} cannot be reached: {error.strerror}.") from error

    def _gone(self, handle: Handle) -> SandboxGone:
        return SandboxGone(f"Sandbox {handle.id} has ended: {_why(self.box(handle)) or 'its steward is gone'}.")

    async def _answer(
        self, sock: socket.socket, word: str, patience: float = _PATIENCE, most: int = 1
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            data, fds = await self.io.recv_fds(sock, messages.MAX_MESSAGE, most, patience)
            answer = messages.decode(data)
        except TimeoutError:
            raise Unresponsive("The sandbox's steward did not answer in time.") from None
        except (messages.Ended, ConnectionError):
            if word == "ready":
                raise CreateFailed("The sandbox's steward died while it made the sandbox.") from None
            raise SandboxGone("The sandbox ended before it answered.") from None
        if word in answer:
            return answer[word], fds
        error: Mapping[str, Any] = answer.get("error", {})
        kind = ERRORS.get(str(error.get("code")), SandboxError)
        raise kind(str(error.get("message", answer)), hint=error.get("hint"))


def _why(box: str) -> str | None:
    """What the steward has left word of."""
    try:
        with open(word_of_end(box), encoding="utf-8") as file:
            return file.read(2000)
    except (OSError, ValueError):
        return None


def _owners(begin: Mapping[str, Any], job: Mapping[str, Any]) -> dict[int, int]:
    was, becomes = begin.get("uid"), job.get("uid")
    return {was: becomes} if isinstance(was, int) and isinstance(becomes, int) else {}


def _start(order: dict[str, Any], maker: socket.socket, warmth: tuple[str, str] | None) -> None:
    from . import launch

    if warmth is not None:
        launch.start_warm(order, maker, state_dir(), warmth)
    else:
        launch.start(order, maker)


def _end_steward(handle: Handle) -> None:
    """End one that nobody can reach any more, because its socket was removed. All behind its wall die with it."""
    pid, started = handle.data.get("pid"), handle.data.get("started")
    if not isinstance(pid, int) or not isinstance(started, int):
        return
    try:
        if started_at(pid) == started:
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
