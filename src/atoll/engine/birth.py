"""Making one sandbox, from outside: what the keeper does until the guest answers.

`Birth.start` brings the first process behind most of its wall; `Birth.finish` gives it a job (limits,
mounts, network) and waits until the wall is closed. Between the two a sandbox may be parked.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ..guest.config import Config
from ..guest.server import Server
from . import cgroups, jail, kernel, layout, messages, rootfs
from .idmap import mapped_source

# Host ids of sandbox users when root makes them: far from people, services, containers and subuids.
FIRST_UID = 1_900_000_000
_UIDS = 1 << 22
_BIRTH_TIMEOUT = 20.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Settings(NamedTuple):
    """What the zygote found out once about this host."""

    layout: layout.Layout
    rootless: bool
    hierarchy: cgroups.Hierarchy | None
    landlock: int
    filter_code: bytes
    template: str
    python: str
    python_path: tuple[str, ...]
    resolver: str


class BirthFailed(Exception):
    """The sandbox could not be made. `code` is from the driver's closed table."""

    def __init__(self, message: str, code: str = "create_failed") -> None:
        super().__init__(message)
        self.code = code


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

    def start(self, job: dict[str, Any] | None) -> None:
        """Bring the first process behind its namespaces and root.

        `job` is given when the sandbox is not parked; it may ask for a root of its own or the host's network.

        Raises:
            BirthFailed: with the reason as a sentence.
        """
        self._make_box()
        if self.group:
            self.group.make()
        ours, theirs = messages.pair()
        flags = jail.NAMESPACES
        if job is None or job["network"] != "host":
            flags |= kernel.CLONE_NEWNET
        if self.settings.rootless:
            flags |= kernel.CLONE_NEWUSER
        self.pid = kernel.clone(flags)
        if self.pid == 0:
            ours.close()
            self._first_process(theirs, job)
        theirs.close()
        self.control = ours
        ours.settimeout(_BIRTH_TIMEOUT)
        if self.settings.rootless:
            self._map_rootless()
        self._expect("parked")

    def finish(self, job: dict[str, Any]) -> None:
        """Apply the caller's wishes and close the wall.

        Raises:
            BirthFailed: with the reason as a sentence.
        """
        if self.group:
            self.group.limit(job["memory"], job["pids"], job["cpu"])
        job = {**job, "uid": self.uid, "rootless": self.settings.rootless, "landlock": self.settings.landlock}
        fds: list[int] = []
        source = job["source"]
        if source is not None and not self.settings.rootless:
            fds.append(mapped_source(source, self.uid))
        try:
            messages.send(self.control, {"job": job}, *fds)
        finally:
            for fd in fds:
                os.close(fd)
        self._expect("ready")
        self.control.settimeout(None)

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
        for name in (*layout.PRIVATE, "upper", "scratch"):
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

    def _first_process(self, control: socket.socket, job: dict[str, Any] | None) -> NoReturn:
        """Runs as process 1 of the sandbox and never returns."""
        try:
            kernel.close_from(3, (control.fileno(),))
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            server = self._build(control, job)
            messages.send(control, {"ready": True})
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
            messages.send(control, {"failed": f"The wall could not be built: {error}"})
        finally:
            os._exit(1)

    def _build(self, control: socket.socket, job: dict[str, Any] | None) -> Server:
        settings = self.settings
        if settings.rootless:
            messages.receive(control)
        if self.group:
            self.group.join()
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        root, locked = settings.template, settings.rootless
        if job and (job["image"] or job["workdir"] != layout.WORKSPACE):
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            root, locked = f"{self.box}/root", False
            os.makedirs(root, exist_ok=True)
            rootfs.populate(root, image=job["image"], workdir=job["workdir"], resolver=settings.resolver)
            rootfs.seal(root)
        jail.enter(root, locked=locked)
        if job is None or job["network"] != "host":
            jail.loopback_up()
        messages.send(control, {"parked": True})
        message, fds = messages.receive(control)
        job = message["job"]
        jail.furnish(self.box, job["workdir"], fds[0] if fds else job["source"], rootless=settings.rootless)
        for fd in fds:
            os.close(fd)
        jail.close(job, settings.filter_code)
        return Server(control, self._config(job))

    def _config(self, job: dict[str, Any]) -> Config:
        prefix = os.path.dirname(self.settings.python)
        path = _PATH if prefix in _PATH.split(":") else f"{prefix}:{_PATH}"
        env = {
            "PATH": _PATH if job["image"] else path,
            "HOME": layout.HOME_INSIDE,
            "USER": layout.USER_NAME,
            "LOGNAME": layout.USER_NAME,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            **job["env"],
        }
        return Config(
            workdir=job["workdir"],
            env=env,
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


def started_at(pid: int) -> int:
    """The start time of a process in clock ticks: with the pid it names a process for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def new_id() -> str:
    """A name that nobody can guess and everybody can type."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "sb-" + "".join(alphabet[byte % len(alphabet)] for byte in os.urandom(12))
