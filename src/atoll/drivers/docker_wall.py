"""The wall of one container, as its steward keeps it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..engine import holders, inspection, kernel, layout, messages, network, usage
from ..engine.settings import BirthFailed, started_at
from ..engine.steward.lent import Lent
from ..engine.steward.staged import STAGE
from ..engine.steward.wall import FILES, Readable, StartFailed, Wall
from . import docker_attach
from .docker_container import LINE, name_of, showing
from .docker_engine import Engine, Refused, Unreachable
from .docker_entry import GATE
from .docker_ground import Ground
from .docker_networks import close, separate
from .docker_orphans import sweep_now_and_then
from .docker_sources import DISCARD, RULES, Sourced

_BIRTH, _LOOK = 60.0, 0.25
# How long the engine may take to say what became of a container that has ended, and to remove one.
_STORY, _REMOVAL, _MOMENT = 1.5, 30.0, 0.02
# So long the processor is left to who has just got a sandbox, before the next one is started ahead.
_AFTER_YOU = 0.3
_KILLED = 128 + signal.SIGKILL
_APART = ("mnt", "pid", "ipc", "uts")
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
WALLS = ("mount namespace", "pid namespace", "ipc namespace", "uts namespace", "cgroup namespace", "control group",
    "read-only root", "no capabilities", "no_new_privs", "seccomp")  # fmt: skip


class DockerWall(Wall):
    orders = frozenset((STAGE, DISCARD, RULES))

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        super().__init__(box, job)
        self._engine = Engine(job["engine"], self._wait)
        self._name = name_of(box)
        self._first: tuple[int, int] | None = None
        self._lent = Lent(job)
        self._ground = Ground(box, job) if job["grounded"] else None
        self._sourced = Sourced(box, job, self._ground, self._wait)

    def _wait(self, what: Readable | None, seconds: float) -> bool:
        return self.wait(what, seconds)

    def start(self) -> socket.socket:
        since = time.time()
        if self.job["bridge"]:
            # Before anything of the image runs.
            self._close(self.job["bridge"])
        try:
            if self._ground is not None:
                self._ground.lay()
            control = self._start_attached() if self.job["attached"] else self._start_connected()
        except Unreachable as error:
            raise StartFailed(str(error), "wall_unavailable", error.fix) from error
        finally:
            if self._ground is not None:
                self._ground.lift()
        if self.job["bridge"]:
            self._separate(self.job["bridge"])
        # A runtime with a network stack of its own would not hear of them.
        if self.job["network"] == "none" and os.geteuid() == 0 and not self.job["attached"]:
            network.add_dummies(self.guest)
        self._sourced.first = self.guest
        self._sourced.record(since)
        walls = [*WALLS, *(["network namespace"] if self.job["network"] != "host" else [])]
        if self.job["runtime"]:
            walls.insert(0, f"the runtime {self.job['runtime']}")
        self.facts = {"engine": self._engine.path, "container": self._name, "uid": self.job["uid"]}
        self.facts |= {"image": self.job["body"]["Image"], "disk": self.job["disk"], "source": self.job["source"]}
        self.facts |= {"codebase": self.job.get("codebase"), "environment": self._lent.key}
        self.facts |= {
            "limits": self.job["limits"],
            "walls": walls,
            "view": self._ground.recipe if self._ground else None,
        }
        return control

    def _close(self, bridge: str) -> None:
        try:
            close(bridge)
        except BirthFailed as error:
            raise StartFailed(str(error), error.code) from error

    def _separate(self, bridge: str) -> None:
        try:
            separate(bridge)
        except OSError as error:
            raise StartFailed(
                f"The sandboxes on a network cannot be kept apart: {error}.", "wall_unavailable"
            ) from error

    def kept(self, request: Mapping[str, Any]) -> None:
        """Remove what others have left, and start those ahead who may be wanted next: in a process of its own."""
        between = os.fork()
        if between == 0:
            try:
                if os.fork() == 0:
                    kernel.close_from(3, ())
                    self._do_chores(request)
            finally:
                os._exit(0)
        os.waitpid(between, 0)

    def _do_chores(self, request: Mapping[str, Any]) -> None:
        if request.get("pool"):
            time.sleep(_AFTER_YOU)
            from ..io import BlockingIO
            from ..policy.spec import spec_from_json
            from .docker import DockerDriver

            os.environ["DOCKER_HOST"] = f"unix://{self._engine.path}"
            os.environ["ATOLL_HOME"] = self.job["home"]
            if self.job["runtime"]:
                os.environ["ATOLL_DOCKER_RUNTIME"] = self.job["runtime"]
            DockerDriver(BlockingIO()).top_up(spec_from_json(request["spec"]), int(request["pool"]))
        sweep_now_and_then(self._engine, self.job["home"])

    def _start_connected(self) -> socket.socket:
        with self._listening(GATE) as gate, self._listening(LINE) as line:
            self._create()
            self._run()
            with self._accepted(gate) as first:
                if self._ground is not None:
                    self._ground.enter(self._peer(first))
                first.send(b"g")
            control = self._accepted(line)
        try:
            self._look_at(control)
        except BaseException:
            control.close()
            raise
        return control

    @contextlib.contextmanager
    def _listening(self, name: str) -> Iterator[socket.socket]:
        """A socket that can be reached from inside for as long as the block lasts."""
        path = f"{self.box}/{LINE}/{name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with messages.listen(path) as listener:
            try:
                # The directory is this user's alone, and what is inside has no other way.
                os.chmod(path, 0o666)  # noqa: S103
                yield listener
            finally:
                os.unlink(path)

    def _start_attached(self) -> socket.socket:
        self._create()
        try:
            line = docker_attach.attach(self._engine, self._name)
        except Refused as error:
            raise StartFailed(f"The engine does not let its container be attached to: {error}.") from error
        self._run()
        return docker_attach.control(line)

    def _create(self) -> None:
        try:
            answer = self._created()
        except Refused as error:
            raise self._not_created(error) from error
        lost = [each for each in answer.get("Warnings") or () if "discarded" in each and "swap" not in each.lower()]
        if lost:
            raise StartFailed(f"The engine cannot hold a limit: {lost[0]}", "unsupported")

    def _created(self) -> dict[str, Any]:
        body = showing(self.job["body"], self._lent.places)
        try:
            answer: dict[str, Any] = self._engine.post("/containers/create", body, name=self._name)
        except Refused as error:
            if error.status != 409:
                raise
            # Of a steward of this box that was killed; only one can have claimed the box.
            self.end()
            answer = self._engine.post("/containers/create", body, name=self._name)
        return answer

    def _not_created(self, error: Refused) -> StartFailed:
        image = self.job["image"]
        if error.status == 404:
            return StartFailed(
                f"The engine has no image {image!r}: {error}.", "wall_unavailable", f"Run: docker pull {image}"
            )
        if "source path" in str(error) or "no such file or directory" in str(error):
            return StartFailed(
                f"The engine does not see the files of this machine, so it runs elsewhere: {error}.",
                "wall_unavailable",
                "Set DOCKER_HOST to the socket of an engine on this machine.",
            )
        return StartFailed(f"The engine does not make the container: {error}.", *_fix(str(error)))

    def _run(self) -> None:
        try:
            self._engine.post(f"/containers/{self._name}/start")
        except Refused as error:
            raise StartFailed(f"The engine does not start the container: {error}.", *_fix(str(error))) from error

    def _accepted(self, listener: socket.socket) -> socket.socket:
        """The line of the guest, which connects by itself."""
        until = time.monotonic() + _BIRTH
        while not self.wait(listener, _LOOK):
            state = self._state()
            if not state.get("Running"):
                code = state.get("ExitCode")
                raise StartFailed(f"The guest ended with {code} before it was ready; does the image fit this machine?")
            if time.monotonic() > until:
                raise StartFailed(f"The guest was not ready after {_BIRTH:.0f} s.")
        return listener.accept()[0]

    def _look_at(self, control: socket.socket) -> None:
        """That the wall stands, by the kernel's word: an engine may be configured to leave some of it out."""
        pid = self._peer(control)
        self._first = pid, started_at(pid)
        self.guest = pid
        facts = inspection.status(pid)
        missing = [name for name in _CAPABILITIES if int(facts[name], 16)]
        missing += [name for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")) if facts.get(name) != value]
        if int(facts.get("Seccomp_filters", 2)) < 2:
            missing.append("Seccomp_filters")
        if set(facts["Uid"].split()) != {str(self.job["uid"])}:
            missing.append("Uid")
        apart = _APART if self.job["network"] == "host" else (*_APART, "net")
        missing += [
            f"{name} namespace"
            for name in apart
            if inspection.identity(f"/proc/{pid}/ns/{name}") == inspection.identity(f"/proc/self/ns/{name}")
        ]
        if missing:
            raise StartFailed(
                f"The engine made a container without its wall: {', '.join(missing)}.",
                "wall_unavailable",
                "Check the engine's configuration: seccomp must not be unconfined (`docker info`).",
            )

    def _peer(self, line: socket.socket) -> int:
        """Who is at the other end, which must be the sandbox's user. Raises StartFailed."""
        pid, uid, _ = struct.unpack("iII", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if pid <= 0:
            raise StartFailed("The engine runs where its processes cannot be seen from here.", "wall_unavailable")
        if os.geteuid() == 0 and uid != self.job["uid"]:
            raise StartFailed(f"User {uid} of this machine has taken the place of the guest.", "wall_unavailable")
        return int(pid)

    def obey(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[int]]:
        return self._sourced.obey(request)

    def end(self) -> None:
        self._sourced.end()
        self._end_container()
        if self._ground is not None and self.job["attached"]:
            # Its disk may stay mounted for somebody who has copied the host's mounts; see `Ground`.
            self._ground.settle()

    def _end_container(self) -> None:
        until = time.monotonic() + _REMOVAL
        while True:
            try:
                self._engine.delete(f"/containers/{self._name}", force=True, v=True)
            except Refused as error:
                if error.status == 404:
                    return
                if time.monotonic() > until:
                    raise OSError(f"the engine does not remove the container: {error}") from error
                self.wait(None, _MOMENT)
            except Unreachable:
                self._kill()
                return

    def writers(self) -> list[holders.Holder]:
        pids = usage.descendants(self.guest) if self.guest else []
        return holders.writers(pids, *layout.targets(self.job["workdir"]).values())

    def settle(self) -> None:
        if self._ground is not None:
            self._ground.settle()

    def remove(self) -> None:
        if self._ground is not None:
            self._ground.forget()

    def _kill(self) -> None:
        """Without an engine: what is left of the container is removed when there is one again."""
        if self._first is None:
            return
        pid, started = self._first
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if started_at(pid) == started:
                os.kill(pid, signal.SIGKILL)
                while not usage.is_zombie(pid) and started_at(pid) == started:
                    self.wait(None, _MOMENT)

    def pause(self) -> None:
        self._change("pause", "Paused", True)

    def resume(self) -> None:
        self._change("unpause", "Paused", False)

    def _change(self, verb: str, member: str, wanted: bool) -> None:
        try:
            self._engine.post(f"/containers/{self._name}/{verb}")
        except Refused as error:
            if self._state().get(member) is not wanted:
                raise OSError(f"the engine does not {verb} the container: {error}") from error

    def usage(self) -> dict[str, Any]:
        found: dict[str, Any] = {"disk": self._disk()}
        try:
            stats = self._engine.get(f"/containers/{self._name}/stats", **{"stream": "false", "one-shot": "true"})
        except (Refused, Unreachable):
            return found
        memory, pids, cpu = (stats.get(name) or {} for name in ("memory_stats", "pids_stats", "cpu_stats"))
        total = (cpu.get("cpu_usage") or {}).get("total_usage")
        found |= {"memory": memory.get("usage"), "processes": None if self.job["attached"] else pids.get("current")}
        found["cpu_seconds"] = None if total is None else total / 1e9
        return found

    def _disk(self) -> int | None:
        if self._ground is not None and self.job["disk"]:
            return self._ground.used()
        try:
            return usage.disk(f"{self.box}/{FILES}")
        except (OSError, usage.TooDeep):
            return None

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = self._engine.get(f"/containers/{self._name}/json").get("State") or {}
        except (Refused, Unreachable):
            return {}
        return state

    def epitaph(self) -> str | None:
        """The engine knows a moment later than the guest's end, and who removes a container first kills it."""
        until = time.monotonic() + _STORY
        while True:
            try:
                state = self._engine.get(f"/containers/{self._name}/json")["State"]
            except Unreachable:
                return "the container engine was stopped, and its container with it"
            except Refused as error:
                return "its container was removed behind atoll's back" if error.status == 404 else str(error)
            if time.monotonic() > until:
                break
            self.wait(None, _MOMENT)
        if state.get("OOMKilled") and state.get("ExitCode") == _KILLED:
            return "its memory was full and the kernel killed its first process"
        return f"its first process ended with {state.get('ExitCode')}"


def _fix(message: str) -> tuple[str, str | None]:
    """What kind of failure the engine tells of, and what to do about it."""
    told = message.lower()
    if "no space left" in told:
        return "create_failed", "The engine's disk is full. Run: docker system prune"
    if "unknown runtime" in told or "invalid runtime" in told or "runtime not found" in told:
        return "wall_unavailable", "Add the runtime to the engine's daemon.json, or run: unset ATOLL_DOCKER_RUNTIME"
    return "create_failed", None
