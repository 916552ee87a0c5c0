"""Making a sandbox of a process that a nursery has forked, from the outside, without trusting it.

The process is hostile from its first moment, since it was forked from code of packages. So everything that it
cannot do to itself is done to it: ids, control group, limits, mounts, its /proc. What it must do itself (drop
its capabilities, load the last filter) is looked at in /proc afterwards, and what it could gain by a weaker filter,
new user namespaces, is forbidden to its user namespace from here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from . import cgroups, jail, kernel, layout, messages, nursery
from .settings import FIRST_UID, BirthFailed, Settings

_NS_GET_PARENT = 0xB702
_CREDENTIALS = struct.Struct("iII")
_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_MOUNTED = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


class NurseryGone(Exception):
    """It is dead. A sandbox can still be made without it."""


def order(settings: Settings, timeout: float) -> tuple[int, socket.socket]:
    """Have a process forked; its pid, by the kernel's word, and the control channel to it.

    Raises:
        NurseryGone: there is nobody to ask.
        BirthFailed: what came is no first process of new namespaces.
    """
    assert settings.orders is not None  # noqa: S101 - only who has a nursery asks it
    ours, theirs = messages.pair()
    ours.settimeout(timeout)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
        with theirs:
            socket.send_fds(settings.orders, [b"f"], [theirs.fileno()])
        data, ancillary, _, _ = ours.recvmsg(messages.MAX_MESSAGE, _SPACE)
    except OSError as error:
        ours.close()
        raise NurseryGone(str(error)) from error
    pid = next((_CREDENTIALS.unpack(raw)[0] for _, kind, raw in ancillary if kind == socket.SCM_CREDENTIALS), 0)
    if not data or pid <= 0:
        ours.close()
        raise NurseryGone("it forked nothing")
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    numbers = _status(pid)["NSpid"].split()
    if len(numbers) != len(_status(os.getpid())["NSpid"].split()) + 2 or numbers[-1] != "1":
        ours.close()
        raise BirthFailed("The nursery gave a process that is no first one of namespaces of its own.")
    return pid, ours


def limit(pid: int, limits: dict[str, int]) -> None:
    names = {"as": resource.RLIMIT_AS, "nproc": resource.RLIMIT_NPROC, "fsize": resource.RLIMIT_FSIZE}
    for name, value in limits.items():
        resource.prlimit(pid, names[name], (value, value))


def furnish(
    pid: int, proc: int, box: str, device: str, source: int | str | None, owner: int | None, job: dict[str, Any]
) -> None:
    """Mount its /proc, its terminals and its writable places. `device` is its disk, if it has one."""
    with _aside():
        trees = _places(box, device, source, owner, job["workdir"])
    polled = job["enforcement"]["memory"] == "polled"
    with jail.inside(pid):
        kernel.move_mount(proc, "/proc")
        jail.hide_in_proc()
        jail.mount_terminals()
        jail.mount_shared_memory(job["memory"] if polled else None)
        for target, tree in trees.items():
            kernel.mount_setattr(tree, _MOUNTED, recursive=False)
            kernel.move_mount(tree, target)
    for fd in (proc, *trees.values()):
        os.close(fd)


def _places(box: str, device: str, source: int | str | None, owner: int | None, workdir: str) -> dict[str, int]:
    """Detached mounts of what it can write to, by where they belong."""
    if device:
        os.makedirs(f"{box}/mount", exist_ok=True)
        kernel.mount(device, f"{box}/mount", "ext4", jail.DISK_FLAGS, "")
        box = f"{box}/mount"
    jail.make_writable(box, owner)
    places = {"/tmp": "tmp", layout.HOME_INSIDE: "home", workdir: "work"}
    if source is not None:
        # Mounted on a place of its own, that is covered by it.
        jail.cover(box, f"{box}/work", source, rootless=owner is None, host="")
    return {target: kernel.open_tree(f"{box}/{name}", recursive=False) for target, name in places.items()}


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """In a mount namespace that is gone afterwards: what is mounted in it is nobody else's."""
    back = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        yield
    finally:
        kernel.setns(back, kernel.CLONE_NEWNS)
        os.close(back)


def settle(settings: Settings, pid: int, uid: int) -> int:
    """Give a process its ids, and its user namespace its limits; then a detached mount of its /proc.

    All three can only be had by somebody in namespaces of its own: a helper does it.

    Raises:
        BirthFailed: it could not be done.
    """
    ours, theirs = messages.pair()
    try:
        helper = os.fork()
        if helper == 0:
            _send_helper(settings, pid, uid, theirs)
        theirs.close()
        try:
            _, fds = messages.receive(ours)
            messages.receive(ours)
        except messages.Ended:
            raise BirthFailed("A process of the nursery could not be settled; the zygote's log says why.") from None
        finally:
            os.waitpid(helper, 0)
        return fds[0]
    finally:
        ours.close()


def _send_helper(settings: Settings, pid: int, uid: int, answer: socket.socket) -> NoReturn:
    """Between the two, since in a pid namespace one can only be born, and without root there is no way back."""
    code = 1
    try:
        target = os.pidfd_open(pid)
        kernel.setns(target, kernel.CLONE_NEWPID)
        helper = os.fork()
        if helper == 0:
            _help(settings, pid, uid, target, answer)
        answer.close()
        code = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    finally:
        os._exit(code)


def _help(settings: Settings, pid: int, uid: int, target: int, answer: socket.socket) -> NoReturn:
    """In the namespace of a hostile process, which can see this one: it must find nothing to take hold of."""
    code = 1
    try:
        # Before it shares a user namespace with it: its memory and descriptors are then out of reach for good.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.close_from(3, (target, answer.fileno()))
        proc = kernel.new_mount("proc", kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV | kernel.MOUNT_ATTR_NOEXEC)
        messages.send(answer, {"proc": True}, proc)
        os.close(proc)
        _map_ids(settings, pid, uid)
        _limit_namespace(target)
        messages.send(answer, {"settled": True})
        code = 0
    except BaseException:  # noqa: BLE001 - the log is the only place left to tell
        import traceback

        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _map_ids(settings: Settings, pid: int, uid: int) -> None:
    """The kernel takes the map only from the user namespace above, which is the nursery's."""
    namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    above = fcntl.ioctl(namespace, _NS_GET_PARENT)
    os.close(namespace)
    kernel.setns(above, kernel.CLONE_NEWUSER)
    os.close(above)
    inside = layout.USER if settings.rootless else nursery.FIRST_INSIDE + uid - FIRST_UID
    # As root an id that no other sandbox has.
    for name, user in (("uid_map", layout.USER), ("gid_map", layout.GROUP)):
        cgroups.write(f"/proc/{pid}/{name}", f"{user} {inside} 1")


def _limit_namespace(target: int) -> None:
    """None may be made below it, whatever filter its processes have."""
    kernel.setns(target, kernel.CLONE_NEWUSER)
    for name, most in jail.OF_THE_USER:
        cgroups.write(f"/proc/sys/user/{name}", str(most))


def check_closed(settings: Settings, pid: int, uid: int) -> None:
    """Look at the wall of a process that says that it has closed it.

    Raises:
        BirthFailed: it stands not as it must; the process is hostile.
    """
    status = _status(pid)
    wrong = [name for name in _CAPABILITIES if int(status[name], 16)]
    wrong += [name for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")) if status[name] != value]
    if int(status.get("Seccomp_filters", "2")) < 2:
        wrong.append("Seccomp_filters")
    wrong += [name for name in ("Uid", "Gid") if set(status[name].split()) != {str(_own_view(settings, uid))}]
    if status["Groups"].strip():
        wrong.append("Groups")
    if wrong:
        raise BirthFailed(f"The nursery's process did not close its wall: {', '.join(wrong)} in its status.")


def _own_view(settings: Settings, uid: int) -> int:
    """An id as this process's user namespace calls it."""
    return 0 if settings.rootless else uid


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
