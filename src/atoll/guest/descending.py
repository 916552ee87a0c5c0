"""The first steps of a guest that is root of a kernel of its own, as in gVisor: bound what is to come, and be nobody.

There the number of processes is held by a control group of that kernel, which only its root can make. What was mounted
for it is covered afterwards, and with no capability left nobody can take the cover off.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from typing import NamedTuple

_GROUPS = "/sys/fs/cgroup"
_GROUP = _GROUPS + "/sandbox"
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_SET_NO_NEW_PRIVS, _DROP_FROM_BOUNDING_SET, _AMBIENT, _CLEAR_ALL = 38, 24, 47, 4
_CAPABILITIES = 64
_NEW_USERS = 0x10000000
_CAPABILITY_VERSION = 0x20080522
_NEW_ADDRESS, _NEW_WITH_ANSWER = 20, 0x605
_ADDRESS, _LOCAL = 1, 2
_ANSWER = 5.0
# Set aside to be nobody's: the dummy address of RFC 7600, and one of the dummy prefix of RFC 9780.
_DUMMIES = ((socket.AF_INET, "192.0.0.8", 32), (socket.AF_INET6, "100:0:0:1::8", 128))


class Descent(NamedTuple):
    """Who to be, and how many processes there may be; 0 is any number.

    `renamed` is for a sandbox whose files are all its root's, since its maker has only one id to give: its user is that
    root under another number, without its rights. `alone` is for one without a network.
    """

    user: int
    group: int
    processes: int
    renamed: bool
    alone: bool

    @classmethod
    def parse(cls, text: str) -> Descent:
        """From "USER,GROUP,PROCESSES,RENAMED,ALONE". Raises ValueError."""
        user, group, processes, renamed, alone = (int(part) for part in text.split(","))
        return cls(user, group, processes, bool(renamed), bool(alone))


def descend(descent: Descent) -> None:
    """Do it, or raise OSError: then nothing may run here."""
    libc = ctypes.CDLL(None, use_errno=True)
    if descent.processes:
        _bound(libc, descent.processes)
    if descent.alone:
        _add_dummy_addresses()
    if descent.renamed:
        _rename(libc, descent)
    else:
        os.setgroups([])
    for capability in range(_CAPABILITIES):
        if libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) != 0:
            break  # this kernel knows no more of them
    libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    os.setresgid(descent.group, descent.group, descent.group)
    os.setresuid(descent.user, descent.user, descent.user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _check(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _bound(libc: ctypes.CDLL, processes: int) -> None:
    _check(libc.mount(b"atoll", _GROUPS.encode(), b"cgroup", 0, b"pids"), "the control group of processes")
    os.mkdir(_GROUP)
    for name, text in (("pids.max", str(processes)), ("cgroup.procs", str(os.getpid()))):
        with open("%s/%s" % (_GROUP, name), "w", encoding="ascii") as file:
            file.write(text)
    flags = _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_PROGRAMS
    _check(libc.mount(b"atoll", _GROUPS.encode(), b"tmpfs", flags, b"mode=0555"), "the cover of the control group")


def _add_dummy_addresses() -> None:
    """As the jail has them: without an address besides those of the loopback a C library that is asked for addresses of
    a family that can be used (AI_ADDRCONFIG) finds not even those of "localhost"."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as line:
        line.settimeout(_ANSWER)
        for family, address, prefix in _DUMMIES:
            packed = socket.inet_pton(family, address)
            request = struct.pack("=BBBBI", family, prefix, 0, 0, socket.if_nametoindex("lo"))
            for kind in (_ADDRESS, _LOCAL):
                request += struct.pack("=HH", 4 + len(packed), kind) + packed
            line.send(struct.pack("=IHHII", 16 + len(request), _NEW_ADDRESS, _NEW_WITH_ANSWER, 1, 0) + request)
            line.recv(4096)  # the addresses are there, or it goes without them


def _rename(libc: ctypes.CDLL, descent: Descent) -> None:
    """In a user namespace of its own root has another number. The rights that come with one are dropped as well."""
    _check(libc.unshare(_NEW_USERS), "a user namespace")
    for name, text in (("uid_map", "%d 0 1" % descent.user), ("gid_map", "%d 0 1" % descent.group)):
        with open("/proc/self/" + name, "w", encoding="ascii") as file:
            file.write(text)


def _check(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
