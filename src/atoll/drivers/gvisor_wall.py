"""One sandbox behind gVisor, in its steward: `runsc run`, watched and bounded."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..engine import kernel, messages, network, roottree, usage
from ..engine.copying import copy_tree
from ..engine.findings import resolver
from ..engine.holders import Holder
from ..engine.removal import remove_tree
from ..engine.steward import asking, tree
from ..engine.steward.lent import Lent
from ..engine.steward.lines import switchboard
from ..engine.steward.staged import NO_SOURCE, STAGE
from ..engine.steward.storage import Storage
from ..engine.steward.wall import FILES, StartFailed, Wall
from . import gvisor_bundle, gvisor_network, gvisor_source
from .gvisor_bundle import Place
from .gvisor_limits import FULL_MEMORY, FULL_TASKS, Limits

_PATIENCE, _ANSWER = 60.0, 20.0
_PIPE = 1 << 20
_LONGEST_ANSWER = 16 << 20
_SET_PIPE_SIZE = 1031
_SYSTEM = ("/usr", "/etc")
_SET_PARENT_DEATH_SIGNAL = 1
_ENOUGH_SAID = 4096
_MOMENT, _LAST_MOMENT = 1.0, 2.0
_TRIES = 4
# Of those whom a guest tells of as writers: each may cost a call of runsc, and nothing else is done meanwhile.
_MOST_WRITERS = 16


class GVisorWall(Wall):
    """The job is what `GVisorDriver.prepare` gives."""

    orders = frozenset((STAGE, gvisor_source.IDLE))

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        super().__init__(box, job)
        tree.adopt_orphans()
        self._root = roottree.hold(job["root"])  # while this process lives
        self._name = os.path.basename(box)
        self._lent = Lent(job)
        self._limits = Limits(box, job, self._cull)
        self._said = -1
        self._frozen = False
        self._control: socket.socket | None = None
        self._writers: list[Holder] = []
        self._condemned: list[int] = []
        size = job["disk"] if job["kernel_disk"] else None
        self._network = -1
        self._storage = None if job["rootless"] else Storage(box, size, job["disks"])
        self._source = gvisor_source.Source(box, job) if job["covered"] else None

    def start(self) -> socket.socket:
        self._limits.begin()
        if self._storage is not None:
            self._storage.open()
        if self._source is not None:
            self._source.open()
        self._furnish()
        if self.job["network"] == "all":
            self._network = gvisor_network.make(self._name, self.box)
        self._write_bundle()
        reader, writer = self._run()
        control = switchboard(reader, writer)
        self._await_guest(control)
        self._control = control
        self._limits.slow_down()
        view = None
        if self._source is not None:
            self._source.record()
            view = self._source.recipe
        self.facts = {"limits": self._limits.enforcement, "walls": self._walls(), "uid": self.job["uid"]}
        self.facts |= {"environment": self._lent.key, "codebase": self.job.get("codebase"), "view": view}
        return control

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
            if not self.job["rootless"]:
                os.chown(place.source, user, user)

    def _copy(self, source: str, target: str) -> None:
        try:
            found = os.stat(source)
            owners = {found.st_uid: self.job["uid"], found.st_gid: self.job["uid"]}
            copy_tree(source, target, owners)
        except OSError as error:
            raise StartFailed(f"The source {source} cannot be copied: {error}.") from error

    def _places(self) -> list[Place]:
        lent = [Place(source, inside) for inside, source in self._lent.places.items()]
        return [*(Place(*place) for place in self.job["places"]), *lent]

    def _write_bundle(self) -> None:
        for name in ("bundle", "runsc"):
            # That of the time before is nobody's any more.
            remove_tree(f"{self.box}/{name}")
            os.mkdir(f"{self.box}/{name}", 0o700)
        root, places = self.job["root"], [*self._places(), *self._resolver()]
        if not all(os.path.exists(root + place.inside) for place in places):
            # runsc would make the directory there, for all sandboxes to see.
            root, more = skeleton(root, f"{self.box}/bundle/root")
            places = [*more, *places]
        namespace = f"/proc/{os.getpid()}/fd/{self._network}" if self._network >= 0 else None
        bundle = gvisor_bundle.config(root, self.job["command"], places, self.job["disk"], namespace)
        with open(f"{self.box}/bundle/config.json", "w", encoding="utf-8") as file:
            json.dump(bundle, file)

    def _resolver(self) -> list[Place]:
        if self._network < 0:
            return []
        path = f"{self.box}/bundle/resolv.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write(resolver())
        os.chmod(path, 0o644)
        return [Place(path, "/etc/resolv.conf")]

    def _call(self, *command: str) -> list[str]:
        options = gvisor_bundle.arguments(
            f"{self.box}/runsc",
            self.job["platform"],
            rootless=self.job["rootless"],
            networked=self.job["network"] == "all",
            reaches_files=self.job["covered"] and self.job["reaches_files"],
        )
        return [self.job["runsc"], *options, *command]

    def obey(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[int]]:
        if self.job["source"] is None:
            raise StartFailed(NO_SOURCE, "invalid_input")
        if self._source is None:
            raise StartFailed(
                "Changes to a source can be told behind gVisor only where root has made the sandbox, on a host that "
                "has overlayfs: this one has a copy.",
                "unsupported",
            )
        if request["op"] == STAGE:
            return self._source.staged(patient=bool(request.get("patient")))
        gvisor_source.check_idle(self._processes(), force=bool(request["force"]))
        return {}, ()

    def settle(self) -> None:
        if self._source is not None:
            self._source.settle()

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
            self._limits.enter()
            for fd, source in enumerate(stdio):
                os.dup2(source, fd)
            if self._network >= 0:
                gvisor_network.admit(self._network)
            kernel.close_from(3)
            os.setsid()
            os.umask(0o022)  # what runsc makes to mount on is for all in there
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

    def _last_words(self) -> str:
        """What runsc has written to its standard error."""
        try:
            select.select([self._said], [], [], 0.5)
            words = os.read(self._said, _ENOUGH_SAID)
        except OSError:
            return ""
        return " ".join(words.decode(errors="replace").split())[-1000:].rstrip(".")

    def _walls(self) -> list[str]:
        layers = [f"gVisor {self.job['version']} ({self.job['platform']})", "no capabilities", "no_new_privs"]
        return [*layers, *(["control group"] if self._limits.group is not None else [])]

    def forsake(self) -> None:
        if self._storage is not None:
            self._storage.forsake()

    def end(self) -> None:
        if self._frozen and self._limits.group is not None:
            with contextlib.suppress(OSError):  # the dying go on dying
                self._limits.group.freeze(False)
        self._frozen = False
        if self._source is not None:
            self._source.end()
        self._limits.end()
        tree.kill_all(os.getpid())
        self._limits.remove()
        self._control = None
        if self._network >= 0:
            os.close(self._network)
            self._network = -1
        network.forget(self._name, self.box)
        if self._source is not None:
            self._source.close()
        if self._storage is not None:
            self._storage.close()

    def tend(self, now: float) -> float:
        return float("inf") if self._frozen or self._control is None else self._limits.look()

    def pause(self) -> None:
        # Only the guest can tell, and only while it runs: gVisor keeps files open that nobody has open inside.
        self._writers = self._told_writers()
        self._freeze()
        self._frozen = True

    def _freeze(self) -> None:
        group = self._limits.group
        if group is None:
            self._ask("pause")
            return
        for left in reversed(range(_TRIES)):
            try:
                group.freeze(True)
                return
            except TimeoutError:
                # Who is being traced by somebody that stands still already may not come to a stop; all go on then.
                if not left:
                    raise

    def resume(self) -> None:
        if self._limits.group is not None:
            self._limits.group.freeze(False)
        else:
            self._ask("resume")
        self._frozen = False
        condemned, self._condemned = self._condemned, []
        for pid in condemned:
            with contextlib.suppress(OSError):  # it was faster
                self._ask("kill", f"-pid={pid}", after=("KILL",))

    def _told_writers(self) -> list[Holder]:
        if self._control is None:
            return []
        places = [place.inside for place in self._places() if place.writable]
        told = asking.ask(self._control, {"op": "writers", "places": places}, _MOMENT).get("writers")
        found = []
        for each in told[:_MOST_WRITERS] if isinstance(told, list) else []:
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                found.append(Holder(int(each["pid"]), 0, str(each["command"])[:80], str(each["path"])[:4096]))
        return found

    def writers(self) -> list[Holder]:
        return self._writers

    def end_writer(self, writer: Holder) -> None:
        self._condemned.append(writer.pid)

    def _ask(self, *command: str, after: tuple[str, ...] = ()) -> str:
        """One more call of runsc for this sandbox, with a `wait` for its end; what it answers. Raises OSError."""
        call = self._call(*command, self._name, *after)
        with open(os.memfd_create("said"), "r+b") as said, open(os.memfd_create("complained"), "r+b") as complained:
            with subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=said, stderr=complained) as process:
                try:
                    with open(os.pidfd_open(process.pid), "rb", buffering=0) as ended:
                        if not self.wait(ended, _ANSWER):
                            raise OSError(f"runsc {command[0]} does not answer")
                finally:
                    process.kill()
            said.seek(0)
            complained.seek(0)
            if process.returncode != 0:
                raise OSError(f"runsc {command[0]}: {complained.read(500).decode(errors='replace').strip()}")
            return said.read(_LONGEST_ANSWER).decode(errors="replace")

    def usage(self) -> dict[str, Any]:
        processes = self._processes()
        return {
            "memory": self._limits.memory(),
            "cpu_seconds": usage.cpu_seconds(tree.descendants(os.getpid())),
            "processes": None if processes is None else len(processes),
            "disk": self._disk(),
        }

    def _disk(self) -> int | None:
        if self._storage is not None:
            return self._storage.used()
        try:
            return usage.disk(f"{self.box}/{FILES}")
        except usage.TooDeep:
            return None  # `Limits` ends it for that

    def _processes(self) -> list[int] | None:
        """As the kernel inside numbers them; None while it is frozen."""
        if self._frozen:
            return None
        try:
            return [int(pid) for pid in json.loads(self._ask("ps", "-format=json"))]
        except (OSError, ValueError, TypeError):
            return None

    def _cull(self) -> None:
        """End everything in it but the guest."""
        for pid in self._processes() or ():
            if pid != 1:
                with contextlib.suppress(OSError):  # it was faster
                    self._ask("kill", f"-pid={pid}", after=("KILL",))

    def epitaph(self) -> str | None:
        """How runsc has ended, which nobody has told it to."""
        if self._limits.broken:
            return self._limits.broken
        watch = os.pidfd_open(self.guest)
        try:
            if not select.select([watch], [], [], _LAST_MOMENT)[0]:
                return "its guest has ended"
        finally:
            os.close(watch)
        _, status = os.waitpid(self.guest, 0)
        if self._limits.out_of_memory():
            return f"{FULL_MEMORY}, and the kernel killed it"
        if self._limits.out_of_tasks():
            return FULL_TASKS
        if os.WIFSIGNALED(status):
            return f"signal {os.WTERMSIG(status)} ended runsc"
        return f"runsc ended with {os.WEXITSTATUS(status)}: {self._last_words() or 'its guest has ended'}"


def skeleton(tree: str, target: str) -> tuple[str, list[Place]]:
    """A root whose directories are this sandbox's own, and what is to be shown in it of a tree."""
    os.mkdir(target, 0o755)
    shown = []
    for name in os.listdir(tree):
        if os.path.islink(f"{tree}/{name}"):
            os.symlink(os.readlink(f"{tree}/{name}"), f"{target}/{name}")
        else:
            os.mkdir(f"{target}/{name}", 0o755)
    for path in (*_SYSTEM, roottree.GUEST):
        os.makedirs(target + path, exist_ok=True)
        shown.append(Place(tree + path, path))
    roottree.open_to_all(target)
    return target, shown


def _set_pipe_size(fd: int) -> None:
    import fcntl

    fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE)


def _open_many_files() -> None:
    """gVisor holds more than one for each that is open in the sandbox."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
