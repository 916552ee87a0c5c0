"""Making one sandbox, from outside: what the keeper does until the guest answers.

`Birth.start` brings the first process behind its wall: all of it for the common job (`closed`), so that
`finish` has only limits and environment to set, or all but the last steps (`open`), for a job that still
needs mounts. Between the two a sandbox may be parked.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from ..guest.config import Config
from ..guest.server import Server
from . import cgroups, disk, jail, kernel, layout, messages, rootfs
from .idmap import mapped_source
from .settings import FIRST_UID, BirthFailed, Settings

_UIDS = 1 << 22
_BIRTH_TIMEOUT = 20.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Birth:
    """One sandbox on its way into life, and later the handles on what was made."""

    def __init__(self, settings: Settings, sandbox: str) -> None:
        self.settings = settings
        self.id = sandbox
        self.box = settings.layout.box(sandbox)
        self.uid = os.getuid() if settings.rootless else FIRST_UID + os.getpid() % _UIDS
        self.group = cgroups.Group(settings.hierarchy, sandbox) if settings.hierarchy else None
        self.control: socket.socket = None  # type: ignore[assignment]
        self.pid = 0
        self.undo: list[Callable[[], None]] = []
        self._closed = False
        self._device = -1

    def start(self, job: dict[str, Any], *, closed: bool) -> None:
        """Bring the first process behind its wall: the whole of it if `closed`.

        Raises:
            BirthFailed: with the reason as a sentence.
        """
        self._make_box()
        if self.group:
            self.group.make()
        ours, theirs = messages.pair()
        flags = jail.NAMESPACES
        if job["network"] != "host":
            flags |= kernel.CLONE_NEWNET
        if self.settings.rootless:
            flags |= kernel.CLONE_NEWUSER
        self.pid = kernel.clone(flags)
        if self.pid == 0:
            ours.close()
            self._first_process(theirs, job, closed=closed)
        theirs.close()
        self.control = ours
        ours.settimeout(_BIRTH_TIMEOUT)
        if self.settings.rootless:
            self._map_rootless()
        self._expect("closed" if closed else "open")
        self._closed = closed

    def finish(self, job: dict[str, Any]) -> None:
        """Apply the caller's wishes and have the wall closed.

        Raises:
            BirthFailed: with the reason as a sentence.
        """
        if self.group:
            self.group.limit(job["memory"], job["pids"], job["cpu"])
        if not self._closed:
            self._close(job)
        self.control.settimeout(None)
        if self._closed and job["env"]:
            # The guest reads its control channel in order: this comes before the first client.
            self.control.send(b"e" + json.dumps(self._environment(job)).encode())

    def _close(self, job: dict[str, Any]) -> None:
        fds: list[int] = []
        if job["source"] is not None and not self.settings.rootless:
            fds.append(mapped_source(job["source"], self.uid))
        if job["loop"]:
            job = {**job, "device": self._disk(job["quota"])}
        try:
            messages.send(self.control, {"job": job}, *fds)
        finally:
            for fd in fds:
                os.close(fd)
        self._expect("closed")

    def _disk(self, size: int) -> str:
        """Put the sandbox's writable places on a disk of their own; gives its device."""
        image = f"{self.box}/disk"
        if not os.path.exists(image):
            disk.copy_sparse(disk.prepare(f"{self.settings.layout.top}/disks", size), image)
        device, self._device = disk.attach(image)
        return device

    def connect_guest(self) -> socket.socket:
        """One end of a fresh stream; the guest has the other.

        Raises:
            OSError: the guest is gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"c"], [theirs.fileno()])
        return ours

    def _make_box(self) -> None:
        os.makedirs(self.box, mode=0o711, exist_ok=True)
        for name in layout.WRITABLE:
            path = f"{self.box}/{name}"
            try:
                os.mkdir(path, 0o755 if name != "home" else 0o700)
            except FileExistsError:
                continue
            if not self.settings.rootless:
                os.chown(path, self.uid, self.uid)

    def _map_rootless(self) -> None:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{layout.USER} 0 1"),
            ("gid_map", f"{layout.GROUP} 0 1"),
        ):
            with open(f"/proc/{self.pid}/{name}", "w", encoding="ascii") as file:
                file.write(text)
        messages.send(self.control, {"mapped": True})

    def _expect(self, word: str) -> None:
        try:
            answer, _ = messages.receive(self.control)
        except TimeoutError:
            raise BirthFailed("The sandbox's first process did not come up in time.") from None
        except messages.Ended:
            raise BirthFailed("The sandbox's first process died while it built its wall.") from None
        if word not in answer:
            raise BirthFailed(str(answer.get("failed", answer)), str(answer.get("code", "create_failed")))

    def _first_process(self, control: socket.socket, job: dict[str, Any], *, closed: bool) -> NoReturn:
        """Runs as process 1 of the sandbox and never returns."""
        try:
            kernel.close_from(3, (control.fileno(),))
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            server = self._build(control, job, closed=closed)
            messages.send(control, {"closed": True})
        except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
            self._report(control, error)
        try:
            server.run()
        except BaseException:  # noqa: BLE001 - the guest is inside the wall: its fate is the sandbox's
            import traceback

            traceback.print_exc()
        os._exit(0)

    def _report(self, control: socket.socket, error: BaseException) -> NoReturn:
        try:
            messages.send(control, {"failed": f"The wall could not be built: {error}."})
        finally:
            os._exit(1)

    def _build(self, control: socket.socket, job: dict[str, Any], *, closed: bool) -> Server:
        settings = self.settings
        if settings.rootless:
            messages.receive(control)
        if self.group:
            self.group.join()
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        root, locked = settings.template, settings.rootless
        if job["image"] or job["workdir"] != layout.WORKSPACE:
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            root, locked = f"{self.box}/root", False
            os.makedirs(root, exist_ok=True)
            rootfs.populate(root, image=job["image"], workdir=job["workdir"], resolver=settings.resolver)
            rootfs.seal(root)
        jail.enter(root, locked=locked)
        if job["network"] != "host":
            jail.loopback_up()
        if closed:
            jail.furnish(self.box, job["workdir"])
        else:
            messages.send(control, {"open": True})
            message, fds = messages.receive(control)
            job = message["job"]
            self._furnish_to_order(job, fds)
        jail.close(job, settings.filter_code, uid=self.uid, rootless=settings.rootless, landlock_abi=settings.landlock)
        server = Server(control, self._config(job))
        if closed:
            server.prefork_context()
        return server

    def _furnish_to_order(self, job: dict[str, Any], fds: list[int]) -> None:
        if device := job.get("device"):
            jail.mount_disk(device, self.box, self.uid)
        jail.furnish(self.box, job["workdir"])
        if job["source"] is not None:
            source = fds[0] if fds else job["source"]
            jail.cover(self.box, job["workdir"], source, rootless=self.settings.rootless)
        for fd in fds:
            os.close(fd)

    def _environment(self, job: dict[str, Any]) -> dict[str, str]:
        prefix = os.path.dirname(self.settings.python)
        path = _PATH if job["image"] or prefix in _PATH.split(":") else f"{prefix}:{_PATH}"
        return {
            "PATH": path,
            "HOME": layout.HOME_INSIDE,
            "USER": layout.USER_NAME,
            "LOGNAME": layout.USER_NAME,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            **job["env"],
        }

    def _config(self, job: dict[str, Any]) -> Config:
        return Config(
            workdir=job["workdir"],
            env=self._environment(job),
            root="/",
            home=layout.HOME_INSIDE,
            python=self.settings.python,
            python_path=list(self.settings.python_path),
        )

    def end(self) -> None:
        """Kill everything behind the wall and wait until it is dead."""
        if not self.pid:
            return
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

    def reason_of_death(self) -> str:
        """Why the first process ended, as far as it can be told."""
        if self.group and self.group.out_of_memory_kills():
            return "it ran out of memory"
        return "its first process ended"
