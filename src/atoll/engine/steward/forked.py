"""A guest that is a fork of its steward: no program is started for it, so it is there at once."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .. import kernel, messages
from .bounds import Bounds
from .processes import TreeWall
from .wall import StartFailed

if TYPE_CHECKING:
    from ...guest.server import Server

_PATIENCE = 1.0
_BIRTH = 30.0


class ForkedWall(TreeWall):
    """The guest has the steward's interpreter, and limits on it and on all that it starts.

    The job has `config`, as `guest.config.Config` takes it, and `limits`, as `Bounds` does.
    """

    _bounds: Bounds | None = None

    def start(self) -> socket.socket:
        bounds = Bounds(os.path.basename(self.box), self.box, self.job["limits"])
        self.facts = {"limits": bounds.enforcement, "walls": []}
        self._bounds = bounds
        bounds.prepare()
        ours, theirs = messages.pair()
        with theirs:
            self.guest = self._unpark(theirs) or os.fork()
            if self.guest == 0:
                self._become_guest(theirs, bounds)
        _await_birth(ours)
        bounds.watch(self.guest)
        return ours

    def _unpark(self, control: socket.socket) -> int:
        """Have the guest that was made ahead serve; 0 where there is none."""
        if not _parked:
            return 0
        line, pid = _parked.pop()
        kind = type(self)
        with line, contextlib.suppress(OSError, ValueError):
            order = {"wall": f"{kind.__module__}:{kind.__qualname__}", "box": self.box, "job": self.job}
            messages.send(line, order, control.fileno())
            return pid
        return 0

    def _become_guest(self, control: socket.socket, bounds: Bounds, kept: tuple[int, ...] = ()) -> NoReturn:
        from ...guest.fresh import find_own_modules
        from ...guest.refusal import Refused

        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            kernel.close_from(3, (control.fileno(), *kept))
            kernel.name_process("python3", "atoll: guest")
            os.setsid()
            # Whoever loses its parent below the guest is the guest's, who takes notice of its end.
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            score, kills = bounds.enter()
            find_own_modules()
            server = self.serve(control, score, kills)
            messages.send(control, {"serving": True})
        except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
            messages.send(control, {"failed": f"{error}"[:2000]})
            os._exit(1)
        try:
            if self.job.get("prefork", True):
                with contextlib.suppress(Refused):  # its directory may be gone, which is told to who wants a cell
                    server.prefork_context()
            server.run()
        finally:
            os._exit(0)

    def serve(self, control: socket.socket, score: int, kills: int | None) -> Server:
        """The guest, in its own process."""
        from ...guest.config import Config
        from ...guest.server import Server

        return Server(control, Config(**self.job["config"]), score, kills)

    def remove(self) -> None:
        if self._bounds is not None:
            self._bounds.remove()

    def tend(self, now: float) -> float:
        return float("inf") if self._bounds is None else self._bounds.tend(now)

    def usage(self) -> dict[str, Any]:
        return {} if self._bounds is None else self._bounds.usage(self.guest)

    def epitaph(self) -> str | None:
        """How the guest has ended, which nobody has told it to."""
        watch = os.pidfd_open(self.guest)
        try:
            if not select.select([watch], [], [], _PATIENCE)[0]:
                return None
            _, status = os.waitpid(self.guest, 0)
        finally:
            os.close(watch)
        if os.WIFSIGNALED(status):
            return f"signal {os.WTERMSIG(status)} ended its guest."
        return f"its guest exited with {os.WEXITSTATUS(status)}."


def _await_birth(guest: socket.socket) -> None:
    """Raises StartFailed."""
    guest.settimeout(_BIRTH)
    try:
        answer, _ = messages.receive(guest)
    except (messages.Ended, ValueError, TimeoutError):
        answer = {"failed": "its guest did not begin"}
    if "failed" in answer:
        raise StartFailed(f"The sandbox could not be made: {answer['failed']}.")


on_park: list[Callable[[], tuple[int, ...]]] = []
"""What a guest that is made ahead does while nobody waits; each gives the descriptors that must stay open for it."""

_parked: list[tuple[socket.socket, int]] = []


def park() -> tuple[int, ...]:
    """In a steward that nobody has wanted yet: make its guest ahead. Gives the descriptors that it has to keep."""
    ours, theirs = messages.pair()
    pid = os.fork()
    if pid == 0:
        _wait(theirs)
    theirs.close()
    _parked[:] = [(ours, pid)]
    return (ours.fileno(),)


def _wait(line: socket.socket) -> NoReturn:
    from .steward import load

    try:
        kernel.close_from(3, (line.fileno(),))
        kept = tuple(fd for function in on_park for fd in function())
        order, (control,) = messages.receive(line)
        line.close()
        wall = load(order["wall"])(order["box"], order["job"])
        if isinstance(wall, ForkedWall):
            bounds = Bounds(os.path.basename(wall.box), wall.box, wall.job["limits"])
            wall._become_guest(socket.socket(fileno=control), bounds, kept)  # noqa: SLF001 - its own
    finally:
        os._exit(0)
