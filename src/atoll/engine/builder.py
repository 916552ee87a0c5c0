"""The builder: a short-lived process that puts up the mounts of one sandbox from within its namespaces.

It is the keeper's child. It makes the sandbox's first process as its own sibling, so that process is the
keeper's child too, then joins its namespaces and furnishes them. All the memory that this work dirties
goes away with it: what stays of a sandbox are processes that have done little else than serve.
"""

from __future__ import annotations

import os
import socket
from typing import Any, NoReturn

from . import cgroups, first, jail, kernel, layout, messages, rootfs
from .settings import Settings


class Plan:
    """What the keeper hands to its builder: everything is there already, inherited by fork."""

    def __init__(self, settings: Settings, box: str, uid: int, group: cgroups.Group | None) -> None:
        self.settings = settings
        self.box = box
        self.uid = uid
        self.group = group


def run(plan: Plan, job: dict[str, Any], keeper: socket.socket, control: tuple[socket.socket, socket.socket],
        *, closed: bool) -> NoReturn:
    """Build the sandbox for `job`, or only so far that the rest can wait for another job, unless `closed`.

    `control` is the channel between keeper and guest, both ends; the keeper hears of success or failure.
    """
    code = 1
    try:
        _build(plan, job, keeper, control, closed=closed)
        code = 0
    except messages.Ended:
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
        messages.send(keeper, {"failed": f"The wall could not be built: {error}."})
    finally:
        os._exit(code)


def _build(plan: Plan, job: dict[str, Any], keeper: socket.socket, control: tuple[socket.socket, socket.socket],
           *, closed: bool) -> None:
    settings = plan.settings
    _make_box(plan)
    if plan.group:
        plan.group.make()
        plan.group.join()
    kernel.unshare(kernel.CLONE_NEWCGROUP)
    pid = _clone_first(plan, job, control)
    ours = control[0]
    control[1].close()
    if settings.rootless:
        _map_rootless(pid)
    _join(pid, rootless=settings.rootless, network=job["network"] != "host")
    root, locked = settings.template, settings.rootless
    if job["image"] or job["workdir"] != layout.WORKSPACE:
        root, locked = _own_root(plan, job), False
    jail.enter(root, locked=locked)
    if job["network"] != "host":
        jail.loopback_up()
    fds: list[int] = []
    if not closed:
        messages.send(keeper, {"pid": pid, "open": True})
        message, fds = messages.receive(keeper)
        job = message["job"]
    if device := job.get("device"):
        jail.mount_disk(device, plan.box, plan.uid)
    jail.furnish(plan.box, job["workdir"])
    if job["source"] is not None:
        source = fds[0] if fds else job["source"]
        jail.cover(plan.box, job["workdir"], source, rootless=settings.rootless)
    socket.sethostname(layout.HOST_NAME)
    messages.send(ours, {"job": job})
    messages.send(keeper, {"pid": pid, "furnished": True})


def _clone_first(plan: Plan, job: dict[str, Any], control: tuple[socket.socket, socket.socket]) -> int:
    flags = jail.NAMESPACES | kernel.CLONE_PARENT
    if job["network"] != "host":
        flags |= kernel.CLONE_NEWNET
    if plan.settings.rootless:
        flags |= kernel.CLONE_NEWUSER
    pid = kernel.clone(flags)
    if pid == 0:
        first.live(plan.settings, plan.uid, control[1])
    return pid


def _make_box(plan: Plan) -> None:
    os.makedirs(plan.box, mode=0o711, exist_ok=True)
    for name in layout.WRITABLE:
        path = f"{plan.box}/{name}"
        try:
            os.mkdir(path, 0o755 if name != "home" else 0o700)
        except FileExistsError:
            continue
        if not plan.settings.rootless:
            os.chown(path, plan.uid, plan.uid)


def _map_rootless(pid: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{layout.USER} 0 1"),
        ("gid_map", f"{layout.GROUP} 0 1"),
    ):
        fd = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _join(pid: int, *, rootless: bool, network: bool) -> None:
    flags = jail.NAMESPACES
    if network:
        flags |= kernel.CLONE_NEWNET
    if rootless:
        flags |= kernel.CLONE_NEWUSER
    fd = os.pidfd_open(pid)
    try:
        kernel.setns(fd, flags)
    finally:
        os.close(fd)


def _own_root(plan: Plan, job: dict[str, Any]) -> str:
    """A root file system for an image or a working directory that the shared template does not have."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    root = f"{plan.box}/root"
    os.makedirs(root, exist_ok=True)
    rootfs.populate(root, image=job["image"], workdir=job["workdir"], resolver=plan.settings.resolver)
    rootfs.seal(root)
    return root
