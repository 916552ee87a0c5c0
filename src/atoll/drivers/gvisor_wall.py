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

from ..engine import cgroups, disk, kernel, messages, usage
from ..engine.steward import tree
from ..engine.steward.lines import switchboard
from ..engine.steward.wall import FILES, StartFailed, Wall
from . import gvisor_bundle

_PATIENCE = 60.0
_PIPE = 1 << 20
_SET_PIPE_SIZE = 1031
_SET_PARENT_DEATH_SIGNAL = 1
_DISK_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
# What gVisor itself takes beside the memory of the sandbox, and what may be filled before the guest has looked.
_OVERHEAD = 192 << 20
# Threads of the host that gVisor has for a process of the sandbox, and for itself.
_TASKS_EACH, _TASKS_OWN = 24, 512
_ENOUGH_SAID = 4096


class GVisorWall(Wall):
    """The job has `runsc`, `platform`, `root`, `places`, `command`, `memory`, `pids`, `cpu`, `disk` and `rootless`."""

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        super().__init__(box, job)
        tree.adopt_orphans()
        self._name = os.path.basename(box)
        self._group: cgroups.Group | None = None
        self._runsc = 0
        self._said = -1
        self._status: int | None = None

    def start(self) -> socket.socket:
        self._bound()
        self._mount()
        self._write_bundle()
        reader, writer = self._run()
        control = switchboard(reader, writer)
        self._await_guest(control)
        self.facts = {"limits": self._enforcement(), "walls": self._walls()}
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

    def _mount(self) -> None:
        """The disk of a sandbox is mounted where only its own processes and this one see it."""
        if self.job["rootless"]:
            return
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        if not self.job["disk"]:
            return
        image = f"{self.box}/disk"
        if os.path.exists(image):
            disk.await_release(image)
        else:
            disk.copy_sparse(disk.prepare(self.job["disks"], self.job["disk"]), image)
        device, held = disk.attach(image)
        try:
            kernel.mount(device, f"{self.box}/{FILES}", "ext4", _DISK_FLAGS)
        finally:
            os.close(held)

    def _write_bundle(self) -> None:
        user = self.job["user"]
        places = [gvisor_bundle.Place(*place) for place in self.job["places"]]
        for place in places:
            if place.writable and not os.path.isdir(place.source):
                os.mkdir(place.source, 0o755)
                os.chown(place.source, user, user)
        bundle = gvisor_bundle.config(self.job["root"], self.job["command"], places, {"PATH": os.defpath})
        os.makedirs(f"{self.box}/bundle", mode=0o700, exist_ok=True)
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
        self._runsc = os.fork()
        if self._runsc == 0:
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
            os.execve(command[0], command, {"PATH": os.defpath, "TMPDIR": "/tmp"})
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

    def remove(self) -> None:
        if self._group is not None:
            self._group.remove()
        if self.job["disk"] and not self.job["rootless"]:
            with contextlib.suppress(OSError):  # it may not have come so far
                disk.shut_down(f"{self.box}/{FILES}")
                kernel.umount(f"{self.box}/{FILES}")

    def pause(self) -> None:
        if self._group is not None:
            self._group.freeze(True)
        else:
            self._ask("pause")

    def resume(self) -> None:
        if self._group is not None:
            self._group.freeze(False)
        else:
            self._ask("resume")

    def _ask(self, verb: str) -> None:
        done = subprocess.run(self._call(verb, self._name), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"runsc {verb}: {done.stderr.strip()[:500]}")

    def usage(self) -> dict[str, Any]:
        pids = tree.descendants(os.getpid())
        memory = usage.memory(pids) if self._group is None else self._group.memory_used()
        found = os.statvfs(f"{self.box}/{FILES}") if self.job["disk"] else None
        return {
            "memory": memory,
            "cpu_seconds": usage.cpu_seconds(pids),
            "disk": None if found is None else (found.f_blocks - found.f_bfree) * found.f_frsize,
        }

    def epitaph(self) -> str | None:
        return None


def _set_pipe_size(fd: int) -> None:
    import fcntl

    fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE)


def _open_many_files() -> None:
    """gVisor holds more than one for each that is open in the sandbox."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
