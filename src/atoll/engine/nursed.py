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
import select
import signal
import socket
import struct
import sys
from typing import Any, NamedTuple, NoReturn

from . import cgroups, inspection, jail, kernel, layout, messages, nursery, places
from .inspection import Broken, Identity
from .settings import FIRST_UID, BirthFailed, Settings
from .ward import Ward

_NS_GET_PARENT = 0xB702
_CREDENTIALS = struct.Struct("iII")
_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)
_DEATH_TIMEOUT = 20.0


class NurseryGone(Exception):
    """It is dead. A sandbox can still be made without it."""


class Newborn(NamedTuple):
    """A process of the nursery's, its control channel, and how its own end of that is known."""

    pid: int
    pidfd: int
    control: socket.socket
    end: Identity


def order(settings: Settings, group: cgroups.Group | None, timeout: float) -> Newborn:
    """Have a process forked, who is then in `group`, alone.

    Raises:
        NurseryGone: there is nobody to ask, or what came is no first process of new namespaces.
    """
    ward = Ward(settings)
    ours, theirs = messages.pair()
    ours.settimeout(timeout)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    pidfd = -1
    try:
        with ward.turn() as inmate:
            with theirs:
                end = inspection.identity(theirs.fileno())
                assert settings.orders is not None  # noqa: S101 - only who has a nursery asks it
                socket.send_fds(settings.orders, [b"f"], [theirs.fileno()])
            pid = _sender(ours)
            pidfd = os.pidfd_open(pid)
            _check_first(pid, inmate.pid)
            if group:
                group.add(pid)
            ward.enroll(pid)
    except (OSError, Broken) as error:
        if isinstance(error, Broken):
            ward.condemn(str(error))
        elif isinstance(error, TimeoutError):
            # Everybody would wait as long, one after the other.
            ward.condemn("the nursery does not answer")
        ours.close()
        theirs.close()
        if pidfd >= 0:
            end_nursed(pidfd)
            os.close(pidfd)
        raise NurseryGone(str(error)) from error
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    return Newborn(pid, pidfd, ours, end)


def _sender(ours: socket.socket) -> int:
    """Who says that it is born, by the kernel's word."""
    data, ancillary, _, _ = ours.recvmsg(messages.MAX_MESSAGE, _SPACE)
    pid = next((_CREDENTIALS.unpack(raw)[0] for _, kind, raw in ancillary if kind == socket.SCM_CREDENTIALS), 0)
    if not data or pid <= 0:
        raise ProcessLookupError("it forked nothing")
    return pid


def _check_first(pid: int, nursery: int) -> None:
    facts = inspection.status(pid)
    numbers = facts["NSpid"].split()
    depth = len(inspection.status(os.getpid())["NSpid"].split()) + 2
    if len(numbers) != depth or numbers[-1] != "1" or facts["PPid"] != str(nursery):
        raise Broken("the nursery gave a process that is no first one of namespaces of its own")


def end_nursed(pidfd: int) -> None:
    """Kill a process that a nursery has forked, with all that is behind its wall, and wait until it is dead."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    select.select([pidfd], [], [], _DEATH_TIMEOUT)


def limit(pid: int, limits: dict[str, int]) -> None:
    names = {"as": resource.RLIMIT_AS, "nproc": resource.RLIMIT_NPROC, "fsize": resource.RLIMIT_FSIZE}
    for name, value in limits.items():
        resource.prlimit(pid, names[name], (value, value))


def furnish(pid: int, proc: int, trees: dict[str, int], job: dict[str, Any], *, rootless: bool) -> None:
    """Mount its /proc, its terminals and its writable places."""
    polled = job["enforcement"]["memory"] == "polled"
    with jail.inside(pid):
        kernel.move_mount(proc, "/proc")
        jail.hide_in_proc()
        jail.hide_first_in_proc()
        if rootless:
            jail.close_proc_to_root()
        jail.mount_terminals()
        jail.mount_shared_memory(job["memory"] if polled else None)
        places.attach(trees)
    for fd in (proc, *trees.values()):
        os.close(fd)


class Hand:
    """A helper in a process's namespaces: gives it its ids and a detached mount of its /proc, and later seals it.

    All three can only be had by somebody in namespaces of its own.

    Raises:
        BirthFailed: it could not be done.
    """

    def __init__(self, settings: Settings, pid: int, uid: int) -> None:
        self._channel, theirs = messages.pair()
        self._helper = os.fork()
        if self._helper == 0:
            self._channel.close()
            _send_helper(settings, pid, uid, theirs)
        theirs.close()
        self.proc = -1
        try:
            self.proc = self._hear()[0]
            self._hear()
        except BaseException:
            self.close()
            raise

    def seal(self) -> None:
        """Forbid its user namespace to have others below it, when nobody is in it who could allow that again."""
        with contextlib.suppress(OSError):
            messages.send(self._channel, {"seal": True})
        self._hear()

    def _hear(self) -> list[int]:
        try:
            return messages.receive(self._channel)[1]
        except messages.Ended:
            raise BirthFailed("A process of the nursery could not be settled; the zygote's log says why.") from None

    def close(self) -> None:
        self._channel.close()
        os.waitpid(self._helper, 0)


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
        messages.send(answer, {"settled": True})
        messages.receive(answer)
        _limit_namespace(target)
        messages.send(answer, {"sealed": True})
        code = 0
    except messages.Ended:
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


def check(settings: Settings, pid: int, uid: int, allowed: set[Identity], group: cgroups.Group | None) -> None:
    """Look at a process that says that it has closed its wall.

    Raises:
        Broken: it stands not as it must; the process is hostile.
    """
    try:
        # An id as this process's user namespace calls it.
        inspection.check_closed(pid, 0 if settings.rootless else uid)
        inspection.check_single(pid)
        if group and (group.count() != 1 or group.processes() != [str(pid)]):
            raise Broken("a process is not alone in its control group")
        inspection.check_descriptors(pid, allowed)
        inspection.check_memory(pid)
    except (FileNotFoundError, ProcessLookupError):
        raise BirthFailed("The sandbox's first process died while it closed its wall.") from None
    except PermissionError as error:
        raise Broken(f"a process does not let itself be looked at: {error}") from error
