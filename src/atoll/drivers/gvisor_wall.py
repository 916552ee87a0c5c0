"""One sandbox behind gVisor, in its steward: `runsc run`, watched and bounded."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import Any, NoReturn

from ..engine import cgroups, kernel, messages, usage
from ..engine.copying import copy_tree
from ..engine.removal import remove_tree
from ..engine.steward import tree
from ..engine.steward.lines import switchboard
from ..engine.steward.storage import Storage
from ..engine.steward.wall import FILES, StartFailed, Wall
from . import gvisor_bundle
from .gvisor_bundle import Place

_PATIENCE, _ANSWER = 60.0, 20.0
_PIPE = 1 << 20
_SET_PIPE_SIZE = 1031
_SET_PARENT_DEATH_SIGNAL = 1
# What gVisor itself takes beside the memory of the sandbox, and what may be filled before the guest has looked.
_OVERHEAD = 192 << 20
# Threads of the host that gVisor has for a process of the sandbox, and for itself.
_TASKS_EACH, _TASKS_OWN = 24, 512
_ENOUGH_SAID = 4096
_LAST_MOMENT = 2.0


class GVisorWall(Wall):
    """The job is what `GVisorDriver.prepare` gives."""

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        super().__init__(box, job)
        tree.adopt_orphans()
        self._name = os.path.basename(box)
        self._group: cgroups.Group | None = None
        self._said = -1
        self._frozen = False
        self._storage = None if job["rootless"] else Storage(box, job["disk"], job["disks"])

    def start(self) -> socket.socket:
        self._bound()
        if self._storage is not None:
            self._storage.open()
        self._furnish()
        self._write_bundle()
        reader, writer = self._run()
        control = switchboard(reader, writer)
        self._await_guest(control)
        self.facts = {"limits": self._enforcement(), "walls": self._walls(), "uid": self.job["uid"]}
        return control

    def _bound(self) -> None:
        hierarchy = cgroups.find()
        if hierarchy is None:
            return
        group = cgroups.Group(hierarchy, self._name)
        group.make()
        self._group = group
        tasks = self.job["pids"] * _TASKS_EACH + _TASKS_OWN
        group.limit(self.job["memory"] + self.job["memory"] // 4 + _OVERHEAD, tasks, None)

    def _furnish(self) -> None:
        """The writable places, and a copy of the source as the workspace."""
        user = self.job["uid"]
        for place in self._places():
            if not place.writable or os.path.isdir(place.source):
                continue
            if place.inside == self.job["workdir"] and self.job["source"] is not None:
                self._copy(self.job["source"], place.source)
                continue
            os.mkdir(place.source, 0o755)
            os.chown(place.source, user, user)

    def _copy(self, source: str, target: str) -> None:
        try:
            found = os.stat(source)
            owners = {found.st_uid: self.job["uid"], found.st_gid: self.job["uid"]}
            copy_tree(source, target, owners)
        except OSError as error:
            raise StartFailed(f"The source {source} cannot be copied: {error}.") from error

    def _places(self) -> list[Place]:
        return [Place(*place) for place in self.job["places"]]

    def _write_bundle(self) -> None:
        bundle = gvisor_bundle.config(self.job["root"], self.job["command"], self._places(), {"PATH": os.defpath})
        for name in ("bundle", "runsc"):
            # That of the time before is nobody's any more.
            remove_tree(f"{self.box}/{name}")
            os.mkdir(f"{self.box}/{name}", 0o700)
        with open(f"{self.box}/bundle/config.json", "w", encoding="utf-8") as file:
            json.dump(bundle, file)

    def _call(self, *command: str) -> list[str]:
        options = gvisor_bundle.arguments(f"{self.box}/runsc", self.job["platform"], rootless=self.job["rootless"])
        return [self.job["runsc"], *options, *command]

    def _run(self) -> tuple[int, int]:
        """Start it; gives the ends of the two pipes to the guest."""
        theirs_in, ours_out = os.pipe2(os.O_CLOEXEC)
        ours_in, theirs_out = os.pipe2(os.O_CLOEXEC)
        self._said, says = os.pipe2(os.O_CLOEXEC)
        for fd in (ours_in, ours_out):
            with contextlib.suppress(OSError):  # more than a user may have; it is only slower then
                _set_pipe_size(fd)
        os.set_blocking(self._said, False)
        command = self._call("run", f"-bundle={self.box}/bundle", self._name)
        self.guest = os.fork()
        if self.guest == 0:
            self._become(command, (theirs_in, theirs_out, says))
        for fd in (theirs_in, theirs_out, says):
            os.close(fd)
        return ours_in, ours_out

    def _become(self, command: list[str], stdio: tuple[int, int, int]) -> NoReturn:
        """In the child: bounded, bound to the steward's life, and with nothing else open."""
        try:
            kernel.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if self._group is not None:
                self._group.add(os.getpid())
            for fd, source in enumerate(stdio):
                os.dup2(source, fd)
            kernel.close_from(3)
            os.setsid()
            _open_many_files()
            os.execve(command[0], command, {"PATH": os.defpath})  # noqa: S606 - argv, no shell
        except BaseException as error:  # noqa: BLE001 - the steward reads it
            os.write(2, f"{error}".encode())
        finally:
            os._exit(127)

    def _await_guest(self, control: socket.socket) -> None:
        """Until the guest says that it serves. Raises StartFailed."""
        control.settimeout(_PATIENCE)
        try:
            answer, _ = messages.receive(control)
        except (messages.Ended, ValueError, TimeoutError):
            answer = {}
        if not answer.get("serving"):
            raise StartFailed(f"gVisor did not start the sandbox: {self._last_words() or 'it does not say why'}.")
        if self._group is not None and self.job["cpu"] is not None:
            # From here on, so that the start does not take the longer the less it may use.
            self._group.limit_cpu(self.job["cpu"])

    def _last_words(self) -> str:
        """What runsc has written to its standard error."""
        try:
            select.select([self._said], [], [], 0.5)
            words = os.read(self._said, _ENOUGH_SAID)
        except OSError:
            return ""
        return " ".join(words.decode(errors="replace").split())[-1000:].rstrip(".")

    def _enforcement(self) -> dict[str, str]:
        held = self._group is not None
        return {
            "memory": "kernel" if held else "polled",
            "pids": "kernel",
            "cpu": "kernel" if self.job["cpu"] is not None else "none",
            "disk": "kernel" if self.job["disk"] else "none",
        }

    def _walls(self) -> list[str]:
        layers = [f"gVisor {self.job['version']} ({self.job['platform']})", "no capabilities", "no_new_privs"]
        return [*layers, *(["control group"] if self._group is not None else [])]

    def end(self) -> None:
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.freeze(False)
            self._group.kill()
        tree.kill_all(os.getpid())
        if self._group is not None:
            self._group.remove()
        if self._storage is not None:
            self._storage.close()

    def pause(self) -> None:
        if self._group is not None:
            self._group.freeze(True)
        else:
            self._ask("pause")
        self._frozen = True

    def resume(self) -> None:
        if self._group is not None:
            self._group.freeze(False)
        else:
            self._ask("resume")
        self._frozen = False

    def _ask(self, *command: str) -> str:
        """One more call of runsc for this sandbox; what it answers. Raises OSError."""
        try:
            done = subprocess.run(
                self._call(*command, self._name), capture_output=True, text=True, timeout=_ANSWER, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"runsc {command[0]} does not answer") from error
        if done.returncode != 0:
            raise OSError(f"runsc {command[0]}: {done.stderr.strip()[:500]}")
        return done.stdout

    def usage(self) -> dict[str, Any]:
        pids = tree.descendants(os.getpid())
        memory = usage.memory(pids) if self._group is None else self._group.memory_used()
        return {
            "memory": memory,
            "cpu_seconds": usage.cpu_seconds(pids),
            "processes": self._processes(),
            "disk": usage.disk(f"{self.box}/{FILES}") if self._storage is None else self._storage.used(),
        }

    def _processes(self) -> int | None:
        """As the kernel inside counts them; None while it is frozen."""
        if self._frozen:
            return None
        try:
            return len(json.loads(self._ask("ps", "-format=json")))
        except (OSError, ValueError, TypeError):
            return None

    def epitaph(self) -> str | None:
        """How runsc has ended, which nobody has told it to."""
        watch = os.pidfd_open(self.guest)
        try:
            if not select.select([watch], [], [], _LAST_MOMENT)[0]:
                return "its guest has ended"
        finally:
            os.close(watch)
        _, status = os.waitpid(self.guest, 0)
        if self._out_of_memory():
            return "its memory was full and the kernel killed it"
        if os.WIFSIGNALED(status):
            return f"signal {os.WTERMSIG(status)} ended runsc"
        return f"runsc ended with {os.WEXITSTATUS(status)}: {self._last_words() or 'its guest has ended'}"

    def _out_of_memory(self) -> bool:
        kills = -1 if self._group is None else self._group.open_kills()
        if kills < 0:
            return False
        with open(kills, encoding="ascii") as file:
            return any(line.split()[0] == "oom_kill" and int(line.split()[1]) > 0 for line in file if line.strip())


def _set_pipe_size(fd: int) -> None:
    import fcntl

    fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE)


def _open_many_files() -> None:
    """gVisor holds more than one for each that is open in the sandbox."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
