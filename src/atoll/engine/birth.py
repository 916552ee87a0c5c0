"""Making one sandbox, as its keeper sees it: a builder puts up the wall, the first process closes it.

`Birth.start` gets it ready for the common job (`closed`), so that `finish` has only limits and environment to
set, or leaves its mounts to be ordered (`open`). Between the two a sandbox may be parked.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from . import builder, cgroups, first, messages
from .settings import FIRST_UID, BirthFailed, Settings

_UIDS = 1 << 22
_BIRTH_TIMEOUT = 20.0


class Birth:
    """One sandbox on its way into life, and later the handles on what was made."""

    def __init__(self, settings: Settings, sandbox: str) -> None:
        self.settings = settings
        self.id = sandbox
        self.box = settings.layout.box(sandbox)
        self.uid = os.getuid() if settings.rootless else FIRST_UID + os.getpid() % _UIDS
        self.group = cgroups.Group(settings.hierarchy, sandbox) if settings.hierarchy else None
        self.control: socket.socket | None = None
        self.pid = 0
        self.undo: list[Callable[[], None]] = []
        self._builder: socket.socket | None = None
        self._builder_pid = 0
        self._closed = False

    def start(self, job: dict[str, Any], *, closed: bool) -> None:
        """Put the wall up: the whole of it if `closed`, else all but what the real job decides.

        Raises:
            BirthFailed: with the reason as a sentence.
        """
        control, work = messages.pair(), messages.pair()
        job = {**job, "prefork": closed}
        self._builder_pid = os.fork()
        if self._builder_pid == 0:
            plan = builder.Plan(self.settings, self.box, self.uid, self.group)
            builder.run(plan, job, work[1], control, closed=closed)
        control[1].close()
        work[1].close()
        self.control, self._builder = control[0], work[0]
        self.control.settimeout(_BIRTH_TIMEOUT)
        self._builder.settimeout(_BIRTH_TIMEOUT)
        self.pid = int(_expect(self._builder, "furnished" if closed else "open")["pid"])
        if closed:
            self._expect_closed()

    def finish(self, job: dict[str, Any]) -> None:
        """Apply the caller's wishes and have the wall closed.

        Raises:
            BirthFailed: with the reason as a sentence.
        """
        assert self.control
        if self.group:
            self.group.limit(job["memory"], job["pids"], job["cpu"])
        if not self._closed:
            self._order({**job, "prefork": False})
        elif job["env"]:
            # The guest reads its control channel in order: this comes before the first client.
            self.control.send(b"e" + json.dumps(first.environment(self.settings, job)).encode())
        self.control.settimeout(None)

    def _order(self, job: dict[str, Any]) -> None:
        """Give the waiting builder the job."""
        assert self._builder
        fds: list[int] = []
        try:
            if job["source"] is not None and not self.settings.rootless:
                from .idmap import mapped_source

                fds.append(mapped_source(job["source"], self.uid))
            device = -1
            if job["loop"]:
                name, device = self._disk(job["quota"])
                job = {**job, "device": name}
            messages.send(self._builder, {"job": job}, *fds)
            _expect(self._builder, "furnished")
            if device >= 0:
                # Mounted now; the device is let go with the last mount.
                os.close(device)
        finally:
            for fd in fds:
                os.close(fd)
        self._expect_closed()

    def _disk(self, size: int) -> tuple[str, int]:
        """A disk for the sandbox's writable places: its device, and a descriptor to hold until it is mounted."""
        from . import disk

        image = f"{self.box}/disk"
        if not os.path.exists(image):
            disk.copy_sparse(disk.prepare(f"{self.settings.layout.top}/disks", size), image)
        return disk.attach(image)

    def _expect_closed(self) -> None:
        assert self.control
        _expect(self.control, "closed")
        self._closed = True
        self._end_builder()

    def _end_builder(self) -> None:
        if self._builder:
            self._builder.close()
            self._builder = None
            os.waitpid(self._builder_pid, 0)

    def connect_guest(self) -> socket.socket:
        """One end of a fresh stream; the guest has the other.

        Raises:
            OSError: the guest is gone.
        """
        assert self.control
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"c"], [theirs.fileno()])
        return ours

    def end(self) -> None:
        """Kill everything behind the wall and wait until it is dead."""
        if self.control:
            self.control.close()
        self._end_builder()
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                pass
            self.pid = 0
        for action in reversed(self.undo):
            action()


def _expect(sock: socket.socket, word: str) -> dict[str, Any]:
    try:
        answer, _ = messages.receive(sock)
    except TimeoutError:
        raise BirthFailed("The sandbox did not come up in time.") from None
    except (messages.Ended, OSError):
        raise BirthFailed("A process of the sandbox died while it was made.") from None
    if word not in answer:
        raise BirthFailed(str(answer.get("failed", answer)))
    return answer
