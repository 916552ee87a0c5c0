"""The midwife: a short-lived process that makes one sandbox, hands it to its keeper, and goes.

It is the keeper's child. It makes the sandbox's first process as its own sibling, so that one is the keeper's
child too, steps into its namespaces to furnish them, and talks to whoever asked for the sandbox. All the memory
that this work dirties goes with it: what stays of a sandbox are processes that have done little but serve.
When nothing is parked and somebody waits, the keeper does this work itself: that saves a fork.

A sandbox may be parked on the way: `closed`, finished but for limits and environment, or `open`, still to be
given mounts.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from typing import Any, NoReturn

from . import (
    cgroups,
    disk,
    first,
    headroom,
    jail,
    jobs,
    kernel,
    layout,
    limits,
    messages,
    nursed,
    places,
    rootfs,
    viewpost,
)
from .birthorders import Order
from .idmap import mapped_source
from .inspection import Broken, Identity, identity
from .layers import Stack, standing
from .settings import FIRST_UID, UIDS, BirthFailed, Settings, code_of, started_at
from .views import View
from .ward import Ward

Delivery = tuple[dict[str, Any], list[int]]
# All that the first process is told of its job: its memory is that of hostile code later.
_HANDED = ("network", "rlimits", "workdir", "prefork", "parked", "env")

# What a container forbids that its host would not.
_REFUSED = os.strerror(errno.EPERM)
_OF_THE_WALL = ("The wall could not be closed", "mount", "pivot_root", "unshare", "clone", "open_tree")
_BIRTH_TIMEOUT = 20.0


class Midwife:
    def __init__(self, settings: Settings, sandbox: str, keeper: int) -> None:
        self._settings = settings
        self._keeper = keeper
        self._id = sandbox
        self._box = settings.layout.box(sandbox)
        self._uid = os.getuid() if settings.rootless else FIRST_UID + keeper % UIDS
        self._group = cgroups.Group(settings.hierarchy, sandbox) if settings.hierarchy else None
        # What the caller is told is found out before there is one, who would wait for it.
        self._facts = {
            "id": sandbox,
            "pid": keeper,
            "started": started_at(keeper),
            "uid": self._uid,
            "walls": limits.walls(settings),
        }
        self._limits: tuple[int, int, float | None] | None = None
        self._listener = messages.listen(settings.layout.socket(sandbox))
        self._pid = 0
        self._pidfd = -1
        self._closed = False
        self._view: View | None = None
        self.delivered = False
        self._control: socket.socket = self._listener

    def begin(self, *, nursed: bool, own_network: bool = True) -> None:
        """Make the first process. A `nursed` one is forked by the template's nursery, if that lives.

        Raises:
            BirthFailed: with the reason as a sentence.
            OSError: the host refused something.
        """
        # Not makedirs: a state directory that was removed stays removed.
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._box, mode=0o711)
        if self._group:
            self._group.make()
        if not (nursed and self._adopt()):
            self._clone(own_network=own_network)

    def start(self, job: dict[str, Any], *, closed: bool, parked: bool = False) -> None:
        """Put the wall up: the whole of it if `closed`, else all but what the real job decides.

        One that was nursed is always closed. Raises as `begin` does.
        """
        if self._pidfd >= 0:
            self._furnish_nursed({**job, "parked": parked})
        elif closed:
            self._furnish({**job, "prefork": True}, entered=False)
        else:
            with jail.inside(self._pid):
                self._enter(job)
        if parked:
            self._limit(job)

    def _limit(self, job: dict[str, Any]) -> None:
        """Set the limits of its control group, unless they are these already. Raises OSError."""
        wanted = job["memory"], job["pids"], job["cpu"]
        if self._group and wanted != self._limits:
            self._group.limit(*wanted)
            self._limits = wanted

    def finish(self, job: dict[str, Any]) -> None:
        """Apply the caller's wishes and have the wall closed. Raises as `start` does."""
        if not job["resume"]:
            headroom.check(self._box)
        self._limit(job)
        if job["network"] == "all":
            from .network import connect_all

            connect_all(self._id, self._box, self._pid, rootless=self._settings.rootless, kinship=self._kinship)
        if not self._closed:
            self._furnish({**job, "prefork": False}, entered=True)
        elif job["env"]:
            # The guest reads its control channel in order: this comes before the first client.
            self._control.send(b"e" + json.dumps(first.environment(self._settings, job)).encode())

    def _adopt(self) -> bool:
        """Let the nursery make the first process, which makes no other until its wall stands; False if it is gone."""
        if self._group:
            self._group.limit_processes(1)
        try:
            self._newborn = nursed.order(self._settings, self._group, _BIRTH_TIMEOUT)
        except nursed.NurseryGone:
            if self._group:
                self._group.limit_processes(jobs.COMMON["pids"])
            return False
        self._pid, self._pidfd, self._control = self._newborn[:3]
        return True

    def _furnish_nursed(self, job: dict[str, Any]) -> None:
        """What `_furnish` does, to a process that is hostile already; then look whether its wall stands."""
        if self._group:
            self._group.limit(job["memory"], 1, None)
        nursed.limit(self._pid, job["rlimits"])
        with contextlib.closing(nursed.Hand(self._settings, self._pid, self._uid)) as hand:
            stack = standing(self._settings.layout, self._id, job)
            device, held = self._disk(job, stack)
            trees, self._view = places.build(self._settings, self._ground(job, stack, device))
            nursed.furnish(self._pid, hand.proc, trees, job, rootless=self._settings.rootless)
            _close(held)
            given = self._hand_job(job, os.open(f"/proc/{self._pid}/oom_score_adj", os.O_RDWR | os.O_CLOEXEC))
            self._expect("closed")
            self._inspect({*given, self._newborn.end})
            hand.seal()
        if self._group:
            self._group.limit_processes(job["pids"])
        messages.send(self._control, {"go": True})
        self._expect("serving")

    def _inspect(self, allowed: set[Identity]) -> None:
        """Its wall must stand; else it is hostile, and so is the nursery that it comes from."""
        try:
            nursed.check(self._settings, self._pid, self._uid, allowed, self._group)
        except Broken as broken:
            Ward(self._settings).condemn(str(broken))
            raise BirthFailed(f"The nursery was ended: {broken}.") from None

    def abandon(self) -> None:
        """After a birth that failed: a process of a nursery is no child of the keeper's, who ends only those."""
        if self._pidfd >= 0:
            nursed.end_nursed(self._pidfd)

    def _clone(self, *, own_network: bool) -> None:
        """Make the first process, in its own namespaces, as the keeper's child."""
        ours, theirs = messages.pair()
        flags = jail.NAMESPACES | self._kinship
        if own_network:
            flags |= kernel.CLONE_NEWNET
        if self._settings.rootless:
            flags |= kernel.CLONE_NEWUSER
        doors = self._group.doors() if self._group else []
        self._pid = kernel.clone(flags)
        if self._pid == 0:
            first.live(self._settings, self._uid, theirs, doors)
        _close(*doors)
        theirs.close()
        self._control = ours
        ours.settimeout(_BIRTH_TIMEOUT)
        if self._settings.rootless:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{layout.USER} 0 1"),
                ("gid_map", f"{layout.GROUP} 0 1"),
            ):
                cgroups.write(f"/proc/{self._pid}/{name}", text)

    def _enter(self, job: dict[str, Any]) -> None:
        custom = job["image"] or job["workdir"] != layout.WORKSPACE
        root = self._own_root(job) if custom else self._settings.template
        jail.enter(root, locked=self._settings.rootless and not custom)

    def _own_root(self, job: dict[str, Any]) -> str:
        """A root file system for an image or a working directory that the shared template does not have."""
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        root = f"{self._box}/root"
        os.makedirs(root, exist_ok=True)
        rootfs.populate(
            root,
            image=job["image"],
            workdir=job["workdir"],
            resolver=self._settings.resolver,
            shown=job["shown"],
            look=self._look,
        )
        rootfs.seal(root)
        return root

    def _look(self, path: str) -> int:
        """A detached mount of a host path that the sandbox may read, whoever owns it; see `idmap`."""
        if not self._settings.rootless:
            with contextlib.suppress(OSError):
                return mapped_source(path, self._uid)
        return kernel.open_tree(path, recursive=True)

    def _furnish(self, job: dict[str, Any], *, entered: bool) -> None:
        """Mount the writable places and the source, then have the first process close the wall."""
        stack = standing(self._settings.layout, self._id, job)
        device, held = self._disk(job, stack)
        trees: dict[str, int] = {}
        # What was written before is another user's, and `places` shows it as this one's.
        if stack or places.Rules.of(job) or (job["resume"] and not self._settings.rootless):
            trees, self._view = places.build(self._settings, self._ground(job, stack, device))
        source = None if trees else self._source(job)
        if not device:
            jail.make_writable(self._box, self._owner)
        with jail.inside(self._pid):
            if not entered:
                self._enter(job)
            polled = job["enforcement"]["memory"] == "polled"
            jail.mount_shared_memory(job["memory"] if polled else None)
            if job["environment"] and (not self._settings.environment or job["workdir"] != layout.WORKSPACE):
                kernel.bind(layout.OLD_ROOT + job["environment"], layout.PACKAGES, read_only=True)
            if trees:
                places.attach(trees)
            else:
                self._furnish_plainly(job, device, source)
        _close(source, held, *trees.values())
        self._hand_job(job)
        self._expect("closed")

    def _furnish_plainly(self, job: dict[str, Any], device: str, source: int | str | None) -> None:
        """Where nothing lies below the top but perhaps a source: the shortest way, for it is gone most often."""
        place = jail.mount_disk(device, self._box, self._uid) if device else self._box
        jail.furnish(place, job["workdir"])
        if source is not None:
            jail.cover(place, job["workdir"], source, rootless=self._settings.rootless)

    @property
    def _owner(self) -> int | None:
        return None if self._settings.rootless else self._uid

    def _ground(self, job: dict[str, Any], stack: Stack, device: str) -> places.Ground:
        rules = places.Rules.of(job)
        return places.Ground(self._id, stack, device, self._owner, job["source"], job["workdir"], rules)

    def _disk(self, job: dict[str, Any], stack: Stack) -> tuple[str, int]:
        """Nothing, where the kernel does not hold the limit."""
        return disk.of_sandbox(self._settings.layout, self._id, stack, job["quota"]) if job["loop"] else ("", -1)

    def _hand_job(self, job: dict[str, Any], *fds: int) -> set[Identity]:
        """With the count of those whom the kernel killed for memory: from inside it could not be opened.

        Gives what was handed over.
        """
        kills = self._group.open_kills() if self._group else -1
        given = [*fds, *([kills] if kills >= 0 else [])]
        told = {name: job[name] for name in _HANDED if name in job}
        told.update(image=bool(job["image"]), environment=bool(job["environment"]))
        messages.send(self._control, {"job": told}, *given)
        known = {identity(fd) for fd in given}
        _close(*given)
        return known

    def _source(self, job: dict[str, Any]) -> int | str | None:
        """The tree to start from: as root a detached mount that shows its owner as the sandbox's user."""
        if job["source"] and not self._settings.rootless:
            return mapped_source(job["source"], self._uid)
        return job["source"] or None

    def _expect(self, word: str) -> None:
        try:
            answer, fds = messages.receive(self._control)
        except TimeoutError:
            raise BirthFailed("The sandbox did not come up in time.") from None
        except messages.Ended:
            raise BirthFailed("The sandbox's first process died while it closed its wall.") from None
        _close(*fds)
        if word not in answer:
            raise BirthFailed(str(answer.get("failed", answer)))
        if word != "closed" or self._pidfd < 0:
            self._closed = True
            self._control.settimeout(None)

    @property
    def _kinship(self) -> int:
        """What makes a process the keeper's child: nothing, if the keeper is its own midwife."""
        return 0 if self._keeper == os.getpid() else kernel.CLONE_PARENT

    def deliver(self, job: dict[str, Any], maker: socket.socket) -> Delivery:
        """Tell the maker, with a stream to the guest; gives all that there is to keep."""
        facts = {
            **self._facts,
            "limits": job["enforcement"],
            "view": self._view.recipe if self._view else None,
        }
        born = {
            "first": self._pid,
            "born": time.time(),
            "lifetime": job["lifetime"],
            "workdir": job["workdir"],
            "source": job["source"],
            "permissions": job["permissions"],
            "ignore": job["ignore"],
            "memory": job["memory"],
            "quota": job["quota"],
            "pids": job["pids"],
            "facts": facts,
        }
        ours, theirs = messages.stream()
        with ours, theirs:
            # The maker first: it waits, and a guest that wakes may take the processor from this process.
            messages.send(maker, {"ready": facts}, ours.fileno())
            # That a guest is dead by now its keeper hears by itself, as at any later time.
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [b"c"], [theirs.fileno()])
        fds = [self._control.detach(), self._listener.detach(), maker.detach()]
        # None, or one: only who has one may be followed by more.
        nursed = [] if self._pidfd < 0 else [self._pidfd]
        born["nursed"] = bool(nursed)
        return born, [*fds, *nursed, *viewpost.pack(self._view)]


def _close(*fds: int | str | None) -> None:
    for fd in fds:
        if isinstance(fd, int) and fd >= 0:
            os.close(fd)


def make(settings: Settings, order: Order, maker: socket.socket, job: int) -> Delivery:
    """Make a sandbox in the keeper's own process: quicker than a midwife, but its memory is then the keeper's.

    Args:
        job: the file with the job, which is read when the first process is there: that has this memory, too.

    Raises:
        BirthFailed, OSError: it could not be made; what was made is the caller's to remove.
    """
    midwife = Midwife(settings, order.sandbox, os.getpid())
    try:
        midwife.begin(nursed=order.nursed, own_network=order.own_network)
        with open(job, "rb") as file:
            file.seek(0)
            planned = limits.plan(messages.decode(file.read()), settings)
        midwife.start(planned, closed=kind_of(planned, settings) == "closed")
        midwife.finish(planned)
        return midwife.deliver(planned, maker)
    except BaseException:
        midwife.abandon()
        raise


def kind_of(job: dict[str, Any], settings: Settings) -> str:
    return jobs.kind(job, has_group=settings.hierarchy is not None, environment=settings.environment or None)


def park(settings: Settings, order: Order, zygote: socket.socket, keeper: socket.socket) -> NoReturn:
    """The whole life of a midwife: make a sandbox as far as it goes, wait for job and maker, deliver, go."""
    code = 1
    midwife = None
    kernel.name_process("atoll-midwife", of=order.sandbox)
    try:
        midwife = Midwife(settings, order.sandbox, os.getppid())
        _start_parked(midwife, settings, zygote, order)
        job, fds = messages.receive(zygote)
        zygote.close()
        _finish_parked(midwife, settings, job, socket.socket(fileno=fds[0]), keeper)
        code = 0
    except messages.Ended:
        code = 0
    except BaseException:  # noqa: BLE001 - the log is the only place left to tell
        import traceback

        traceback.print_exc()
    finally:
        if midwife is not None and not midwife.delivered:
            midwife.abandon()
        os._exit(code)


def _start_parked(midwife: Midwife, settings: Settings, zygote: socket.socket, order: Order) -> None:
    common = {**jobs.COMMON, "environment": settings.environment or None}
    try:
        midwife.begin(nursed=order.nursed)
        midwife.start(limits.plan(common, settings), closed=order.closed, parked=True)
    except (BirthFailed, OSError) as error:
        messages.send(zygote, {"failed": str(error)})
        raise
    messages.send(zygote, {"parked": True})


def _finish_parked(
    midwife: Midwife, settings: Settings, job: dict[str, Any], maker: socket.socket, keeper: socket.socket
) -> None:
    try:
        job = limits.plan(job, settings)
        midwife.finish(job)
        born, fds = midwife.deliver(job, maker)
    except (BirthFailed, OSError) as error:
        # The keeper removes everything, then tells the maker.
        messages.send(keeper, {"failed": failure(error)}, maker.fileno())
    else:
        messages.send(keeper, born, *fds)
        midwife.delivered = True


def failure(error: Exception) -> dict[str, str]:
    """What a maker is told, in the words of the driver's closed table."""
    code = code_of(error, "create_failed")
    if code == "create_failed" and _REFUSED in str(error) and any(call in str(error) for call in _OF_THE_WALL):
        code = "wall_unavailable"
    return {"code": code, "message": str(error)}
