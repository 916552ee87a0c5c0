"""What bubblewrap is started in, and with: a world of its own that holds nothing but what the sandbox is made of.

A process builds it, moves into it for good, and becomes bubblewrap. So bubblewrap never sees the host: what it might do
wrong it does to that world. It is an ordinary user's process there, also where root has started it.

```
/root           the root file system of the sandbox, complete but for /proc
/places/0…2     its writable places: the workspace, /tmp and its home
/bwrap/…        bubblewrap itself; /usr, /lib and so on for its libraries
/proc           the host's: without one in sight, nobody may mount another
```
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any, NamedTuple, NoReturn

from ..engine import cgroups, disk, findings, first, jail, kernel, layout, limits, messages, places, rootfs, viewpost
from ..engine.idmap import mapped_source
from ..engine.layers import standing
from ..engine.layout import Layout
from ..engine.settings import BirthFailed, Settings
from ..engine.steward.lines import package_directory
from ..engine.views import View
from .bwrap_binary import Binary

_GUEST = "/.atoll"
_ROOT, _PLACES, _BINARY = "/root", "/places", "/bwrap"
# Where bubblewrap mounts what it builds the new root on.
_BASE = "/tmp"  # noqa: S108 - it is not the host's
# Besides the guest: bubblewrap itself, which waits for its end.
_OURS = 1


class Order(NamedTuple):
    """What one sandbox is made of.

    Args:
        uid: of its user on the host.
        job: as `engine.orders` has it, with what it stands on.
        cloudpickle: the directory of that package; empty without it.
    """

    places: Layout
    sandbox: str
    uid: int
    rootless: bool
    job: dict[str, Any]
    binary: Binary
    cloudpickle: str


class Ends(NamedTuple):
    """Descriptors that bubblewrap and the guest get: of the control socket, to tell the guest's pid on, and to wait on
    until its network is there."""

    control: int
    told: int
    go: int


def build(order: Order, line: socket.socket, ends: Ends) -> NoReturn:
    """Be bubblewrap. Before, `line` is told what the sandbox is like, or why there is none."""
    try:
        builder = Builder(order)
        told, fds = builder.build()
        messages.send(line, {"built": told}, *fds)
        builder.start(ends)
    except BirthFailed as failed:
        messages.send(line, {"failed": str(failed), "code": failed.code})
    except OSError as error:
        messages.send(line, {"failed": f"The sandbox could not be made: {error}.", "code": "create_failed"})
    except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
        messages.send(line, {"failed": f"The sandbox could not be made: {error!r}.", "code": "create_failed"})
    finally:
        os._exit(1)


class Builder:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._box = order.places.box(order.sandbox)
        self._world = f"{self._box}/world"
        self._settings = self._find_out()
        self._job = limits.plan(order.job, self._settings)

    def _find_out(self) -> Settings:
        order = self._order
        return findings.find_out(
            order.places,
            self._world + _ROOT,
            rootless=order.rootless,
            hierarchy=cgroups.find(),
            rules=places.Rules.of(order.job) is not None,
        )

    def build(self) -> tuple[dict[str, Any], list[int]]:
        """Make the world and go there. Gives what the steward wants to know, with descriptors of the view.

        Raises:
            BirthFailed: something that was asked for cannot be honoured.
            OSError: the host refused something.
        """
        self._kills = self._enter_group()
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        trees, view = self._places()
        self._make_world()
        packed = viewpost.pack(view)
        told = {
            "uid": self._order.uid,
            "limits": self._job["enforcement"],
            "walls": ["bubblewrap", *limits.walls(self._settings)],
            "view": view.recipe if view else None,
            "quota": self._job["quota"],
        }
        self._move_in(trees)
        return told, packed

    def _enter_group(self) -> int:
        """Join the control group of the sandbox; gives the count of those that the kernel killed for memory, open."""
        if self._settings.hierarchy is None:
            return -1
        job = self._job
        group = cgroups.Group(self._settings.hierarchy, self._order.sandbox)
        group.make()
        group.add(os.getpid())
        group.limit(job["memory"], job["pids"] + _OURS, job["cpu"])
        return group.open_kills()

    def _places(self) -> tuple[dict[str, int], View | None]:
        order, job = self._order, self._job
        stack = standing(order.places, order.sandbox, job)
        device, held = "", -1
        if job["loop"]:
            device, held = disk.of_sandbox(order.places, order.sandbox, stack, job["quota"])
        owner = None if order.rootless else order.uid
        rules = places.Rules.of(job)
        ground = places.Ground(order.sandbox, stack, device, owner, job["source"], job["workdir"], rules)
        try:
            return places.build(self._settings, ground)
        finally:
            if held >= 0:
                os.close(held)

    def _make_world(self) -> None:
        os.makedirs(self._world, mode=0o700, exist_ok=True)
        kernel.mount("world", self._world, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")
        inside = [_ROOT, _PLACES, _BINARY, "/proc", _BASE, layout.OLD_ROOT, *(f"{_PLACES}/{n}" for n in range(3))]
        for path in inside:
            os.mkdir(self._world + path)
        rootfs.place_system(self._world)
        for path in self._order.binary.shown:
            self._show_binary(path)
        besides = {f"{_GUEST}/atoll": f"{package_directory()}/atoll"}
        if self._order.cloudpickle:
            besides[f"{_GUEST}/cloudpickle"] = self._order.cloudpickle
        root = self._world + _ROOT
        rootfs.populate(
            root,
            workdir=self._job["workdir"],
            resolver=self._settings.resolver if self._job["network"] != "none" else "",
            shown=self._job["shown"],
            look=self._look,
            environment=self._job["environment"] or "",
            besides=besides,
        )
        jail.mount_terminals(root)
        jail.mount_shared_memory(self._job["memory"] if self._job["enforcement"]["memory"] == "polled" else None, root)
        rootfs.seal(root)

    def _show_binary(self, path: str) -> None:
        target = f"{self._world}{_BINARY}/{os.path.basename(path)}"
        if os.path.isdir(path):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o755))
        kernel.bind(path, target, read_only=True)

    def _look(self, path: str) -> int:
        """A detached mount of a host path that the sandbox may read, whoever owns it."""
        if not self._order.rootless and not _is_for_all(path):
            try:
                return mapped_source(path, self._order.uid)
            except OSError:
                pass  # a file system that cannot be mapped; then its modes decide
        return kernel.open_tree(path, recursive=True)

    def _move_in(self, trees: dict[str, int]) -> None:
        """From here on there is no host."""
        kernel.bind("/proc", f"{self._world}/proc", read_only=False)
        self._targets = list(trees)
        places.attach({f"{self._world}{_PLACES}/{number}": tree for number, tree in enumerate(trees.values())})
        for tree in trees.values():
            os.close(tree)
        os.chdir(self._world)
        kernel.pivot_root(".", layout.OLD_ROOT[1:])
        os.chdir("/")
        kernel.umount(layout.OLD_ROOT)

    def start(self, ends: Ends) -> NoReturn:
        """Become an ordinary user, and bubblewrap."""
        brief = _as_file(json.dumps(self._brief()).encode(errors="surrogateescape"))
        code = _as_file(self._settings.filter_code)
        # The caller's keys are none of a sandbox's business. The filter hides them too, where a container forbids this.
        with contextlib.suppress(OSError):
            kernel.leave_session_keyring()
        kept = [*ends, brief, code, *([self._kills] if self._kills >= 0 else [])]
        kernel.close_from(3, tuple(kept))
        for fd in kept:
            os.set_inheritable(fd, True)
        if not self._order.rootless:
            self._become(self._order.uid)
        for name, most in jail.OF_THE_USER[1:]:
            cgroups.write(f"/proc/sys/user/{name}", str(most))
        program = f"{_BINARY}/{self._order.binary.inside}"
        command = [self._settings.python, "-I", "-S", f"{_GUEST}/atoll/engine/steward/entry.py"]
        argv = [program, *self._options(ends, code), "--", *command, str(ends.control), str(brief)]
        os.execve(program, argv, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})  # noqa: S606 - our own arguments

    def _become(self, uid: int) -> None:
        """Nobody but a user of its own, in a user namespace whose limits are this sandbox's alone."""
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(kernel.CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{uid} {uid} 1")):
            cgroups.write(f"/proc/self/{name}", text)

    def _brief(self) -> dict[str, Any]:
        config = first.config(self._settings, self._job)._asdict()
        config["cloudpickle"] = f"{_GUEST}/cloudpickle" if self._order.cloudpickle else ""
        rlimits = self._job["rlimits"]
        return {"config": config, "rlimits": rlimits, "landlock": self._settings.landlock, "kills": self._kills}

    def _options(self, ends: Ends, code: int) -> list[str]:
        spaces = ["user", "pid", "ipc", "uts", "cgroup", *([] if self._job["network"] == "host" else ["net"])]
        options = [f"--unshare-{name}" for name in spaces]
        options += ["--uid", str(layout.USER), "--gid", str(layout.GROUP), "--hostname", layout.HOST_NAME]
        options += ["--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
        options += ["--bind", _ROOT, "/", "--dev-bind", f"{_ROOT}/dev", "/dev", "--proc", "/proc"]
        for name in jail.HIDDEN:
            if os.path.exists(name):
                options += ["--dev-bind", f"{_ROOT}/dev/null", name]
        for name in jail.HIDDEN_DIRECTORIES:
            if os.path.exists(name):
                options += ["--ro-bind", f"{_ROOT}{jail.EMPTY_DIRECTORY}", name]
        if self._order.rootless and jail.is_hosts_root():
            for name in jail.WRITABLE_BY_ID:
                options += ["--ro-bind-try", name, name]
            for name in filter(os.path.exists, jail.READABLE_BY_ID):
                options += ["--dev-bind", f"{_ROOT}/dev/null", name]
        for number, target in enumerate(self._targets):
            options += ["--bind", f"{_PLACES}/{number}", target]
        options += ["--chdir", self._job["workdir"], "--seccomp", str(code)]
        return [*options, "--info-fd", str(ends.told), "--block-fd", str(ends.go)]


def _is_for_all(path: str) -> bool:
    """Whether anybody may read it: atoll itself, and what is installed beside it, most often."""
    first = f"{path}/__init__.py"
    return os.path.exists(first) and all(os.stat(each).st_mode & 0o4 for each in (path, first))


def _as_file(data: bytes) -> int:
    fd = os.memfd_create("atoll", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
