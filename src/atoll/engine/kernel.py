"""System calls that Python does not wrap, through ctypes, each raising OSError with a sentence.

Numbers are given for x86-64 and aarch64; calls added since Linux 5.0 have the same number on both.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Mapping

from ..guest import beneath

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.pythonapi

MACHINE = os.uname().machine
_OLD_CALLS = {
    "x86_64": {
        "clone": 56, "pivot_root": 155, "capset": 126, "seccomp": 317, "keyctl": 250, "syncfs": 306,
        "bpf": 321,
    },
    "aarch64": {
        "clone": 220, "pivot_root": 41, "capset": 91, "seccomp": 277, "keyctl": 219, "syncfs": 267,
        "bpf": 280,
    },
}  # fmt: skip
_NEW_CALLS = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "close_range": 436,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
_CALLS = {**_OLD_CALLS.get(MACHINE, {}), **_NEW_CALLS}

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_PARENT = 0x8000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME = 1, 2, 4, 8, 32, 1024
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2

AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
RESOLVE_NO_XDEV, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 1, 4, 8
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 1, 2, 4, 0x100000
MOUNT_ATTR_NOEXEC = 8
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 0, 1, 6

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 24, 28
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
_KEYCTL_JOIN_SESSION_KEYRING = 1
# noroot, no setuid fixup, keep-caps off, no ambient raise; each with its lock.
SECUREBITS_LOCKED = 0b11101111


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        return int(file.read())


LAST_CAPABILITY = _last_capability()
CAPABILITY_HEADER = struct.pack("Ii", 0x20080522, 0)


def _fail(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def syscall(name: str, *args: object) -> int:
    """Make a system call by name.

    Raises:
        OSError: it failed, or this machine's architecture has no number for it here.
    """
    number = _CALLS.get(name)
    if number is None:
        raise OSError(38, f"{name}: not known on {MACHINE}")
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = int(_libc.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        raise _fail(name)
    return result


def clone(flags: int) -> int:
    """Like `os.fork`, into new namespaces. Only for single-threaded processes."""
    _python.PyOS_BeforeFork()
    pid = int(_libc.syscall(ctypes.c_long(_CALLS["clone"]), ctypes.c_ulong(flags | signal.SIGCHLD), 0, 0, 0, 0))
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, f"clone: {os.strerror(number)}")
    return pid


def unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise _fail("unshare")


def setns(fd: int, kind: int) -> None:
    if _libc.setns(fd, kind) != 0:
        raise _fail("setns")


def _text(value: str | None) -> bytes | None:
    return None if value is None else os.fsencode(value)


def mount(source: str | None, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    if _libc.mount(_text(source), _text(target), _text(kind), ctypes.c_ulong(flags), _text(data)) != 0:
        raise _fail(f"mount {target}")


def umount(target: str, flags: int = MNT_DETACH) -> None:
    if _libc.umount2(_text(target), flags) != 0:
        raise _fail(f"umount {target}")


def file_system(fd: int) -> int:
    """The kernel's number for the kind of file system that an open file is on."""
    found = ctypes.create_string_buffer(256)
    if _libc.fstatfs(fd, found) != 0:
        raise _fail("fstatfs")
    return int(struct.unpack_from("q", found)[0])


def pivot_root(new: str, old: str) -> None:
    syscall("pivot_root", _text(new), _text(old))


def open_tree(path: str, *, recursive: bool) -> int:
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | (AT_RECURSIVE if recursive else 0)
    return syscall("open_tree", AT_FDCWD, _text(path), flags)


def open_tree_at(directory: int, path: str = "") -> int:
    """A detached copy of one mount, seen from a descriptor: of itself, or of what lies below it."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH
    return syscall("open_tree", directory, _text(path), flags)


def move_mount_on(fd: int, place: int) -> None:
    """Attach a detached mount to a place that is given by descriptor."""
    syscall("move_mount", fd, b"", place, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open what lies below a directory, by the kernel's own rules of how to get there."""
    return beneath.openat2(directory, os.fsencode(path), flags, 0, resolve)


def syncfs(fd: int) -> None:
    """Wait until all that was written to the file system of a descriptor is on its disk. Raises OSError."""
    syscall("syncfs", fd)


def move_mount(fd: int, target: str) -> None:
    syscall("move_mount", fd, b"", AT_FDCWD, _text(target), MOVE_MOUNT_F_EMPTY_PATH)


def mount_setattr(fd: int, attributes: int, *, recursive: bool, userns: int = 0, clear: int = 0) -> None:
    """Add attributes to a mount given by descriptor, and take some away; `userns` is for MOUNT_ATTR_IDMAP."""
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    packed = struct.pack("QQQQ", attributes, clear, 0, userns)
    syscall("mount_setattr", fd, b"", flags, packed, len(packed))


def bind(source: str, target: str, *, read_only: bool, device: bool = False) -> None:
    """Mount a directory or file at another place, without set-uid and devices, unless it is one. A device is as good on
    a read-only mount; nobody changes its mode there."""
    fd = open_tree(source, recursive=True)
    try:
        attributes = MOUNT_ATTR_NOSUID | (0 if device else MOUNT_ATTR_NODEV) | (MOUNT_ATTR_RDONLY if read_only else 0)
        mount_setattr(fd, attributes, recursive=True)
        move_mount(fd, target)
    finally:
        os.close(fd)


def new_mount(kind: str, attributes: int, options: Mapping[str, str | None] = {}) -> int:
    """A descriptor of a new mount of a file system without a device, attached nowhere. A flag has no value."""
    context = syscall("fsopen", _text(kind), 1)
    try:
        for name, value in options.items():
            how = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
            syscall("fsconfig", context, how, _text(name), _text(value), 0)
        syscall("fsconfig", context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return syscall("fsmount", context, 1, attributes)
    finally:
        os.close(context)


_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    result = int(_prctl(option, first, second, 0, 0))
    if result < 0:
        raise _fail(f"prctl {option}")
    return result


def name_process(name: str, title: str = "", *, of: str = "") -> None:
    """What `ps` and `top` call this process: atoll-…, at most 15 bytes; and what stands for its command line.

    That is "atoll: … sb-…" for one that works for a sandbox, unless it is given. A sandbox can read the command line of
    its first process: who becomes one takes a title that tells nothing.
    """
    text = ctypes.create_string_buffer(name.encode())
    prctl(PR_SET_NAME, ctypes.addressof(text))
    place, size = _arguments
    if size:
        title = title or f"{name.replace('-', ': ', 1)} {of}".rstrip()
        ctypes.memmove(place, title.encode()[: size - 1].ljust(size, b"\0"), size)


# Where this process's arguments are in its memory, and in that of all its forks.
_arguments = (0, 0)


def find_arguments() -> None:
    """Find them, for a process that was started with arguments of ours and is to fork others."""
    global _arguments  # noqa: PLW0603 - it is so for this process's whole life
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, end = int(fields[45]), int(fields[46])
    # Zero is what the kernel tells where it does not say.
    _arguments = (first, end - first) if 0 < first < end else (0, 0)


def leave_session_keyring() -> None:
    """Have an empty one instead.

    Raises:
        OSError: a container forbids it, or the user has too many keys.
    """
    syscall("keyctl", _KEYCTL_JOIN_SESSION_KEYRING, None)


def drop_capabilities() -> None:
    """Give up every capability, for ever: bounding set, ambient set and the three process sets."""
    for capability in range(LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, capability)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    prctl(PR_SET_SECUREBITS, SECUREBITS_LOCKED)
    syscall("capset", CAPABILITY_HEADER, bytes(24))


def close_from(first: int, keep: tuple[int, ...] = ()) -> None:
    """Close every descriptor from `first` on, but those to keep."""
    for fd in sorted(k for k in keep if k >= first):
        if fd > first:
            syscall("close_range", first, fd - 1, 0)
        first = fd + 1
    syscall("close_range", first, 0xFFFFFFFF, 0)
