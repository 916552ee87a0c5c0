"""The steps of the wall, in order.

The midwife, inside the sandbox's namespaces: `enter` (root file system, proc, devices), `furnish` and `cover`
(the writable places and the source). The first process itself: `close` (ids, user namespace, capabilities,
no_new_privs, Landlock, seccomp). After `close` it is hostile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Iterator
from typing import Any

from . import kernel, landlock, layout, seccomp

NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_NOSUID_NODEV = kernel.MS_NOSUID | kernel.MS_NODEV
DISK_FLAGS = _NOSUID_NODEV | kernel.MS_NOATIME
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8914, 0x8916, 0x891C, 1
# Set aside to be nobody's: the dummy address of RFC 7600, and one of the dummy prefix of RFC 9780.
_DUMMY, _DUMMY6 = "192.0.0.8", "100:0:0:1::8"
_OPEN_FILES = 4096
SOMETHING_MOUNTED = (
    "something is mounted below %s, or atoll's own state is in it, and only root can leave that out; "
    "give a directory further down"
)
# Terminals, inotify instances and the like are counted for the whole host: no sandbox may take them all.
_TERMINALS = 64
OF_THE_USER = (("max_user_namespaces", 0), ("max_inotify_instances", 64), ("max_inotify_watches", 65536))
# The names of the host user's keys: no namespace hides them from a sandbox of the same user.
# And what tells of the host's boot, disks and drivers, and of how many other sandboxes there are.
HIDDEN = tuple(
    f"/proc/{name}"
    for name in (
        "keys",
        "key-users",
        "cmdline",
        "partitions",
        "diskstats",
        "config.gz",
        "interrupts",
        "timer_list",
        "cgroups",
    )
)
# The same for directories: what every mounted disk's file system is doing, and the host's hardware.
HIDDEN_DIRECTORIES = tuple(f"/proc/{name}" for name in ("fs", "bus", "scsi"))
# Where the sandbox's user is the host's root without his rights: what the kernel lets him write, or read, by his id.
WRITABLE_BY_ID = tuple(
    f"/proc/{name}" for name in ("sys", "irq", "acpi", "tty", "driver", "sysrq-trigger", "mtrr", "dynamic_debug")
)
READABLE_BY_ID = tuple(
    f"/proc/{name}"
    for name in (
        "slabinfo", "vmallocinfo", "pagetypeinfo", "kpagecount", "kpageflags", "kpagecgroup", "kcore", "sched_debug",
        "timer_stats", "latency_stats",
    )
)  # fmt: skip
# One of every root file system of ours that is read-only and has nothing in it.
EMPTY_DIRECTORY = "/run"


_OF_THE_FIRST = ("/proc/1/oom_score_adj", "/proc/1/oom_adj")


def enter(root: str, *, locked: bool) -> None:
    """Make `root` this process's root, with the host's still at `layout.OLD_ROOT`.

    `locked` is for a mount namespace copied into a less privileged user namespace, where only a fresh
    copy of the mounts can become a root.
    """
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    if locked:
        fd = kernel.open_tree(root, recursive=True)
        kernel.move_mount(fd, root)
        os.close(fd)
    os.chdir(root)
    kernel.pivot_root(".", layout.OLD_ROOT[1:])
    os.chdir("/")
    mount_terminals()


def mount_terminals(root: str = "") -> None:
    kernel.mount(
        "devpts",
        f"{root}/dev/pts",
        "devpts",
        kernel.MS_NOSUID | kernel.MS_NOEXEC,
        f"newinstance,ptmxmode=0666,mode=0620,max={_TERMINALS}",
    )


@contextlib.contextmanager
def inside(pid: int) -> Iterator[None]:
    """Among a process's mounts. Without root there would be no way back from its other namespaces."""
    back = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    target = os.pidfd_open(pid)
    try:
        kernel.setns(target, kernel.CLONE_NEWNS)
        yield
    finally:
        kernel.setns(back, kernel.CLONE_NEWNS)
        os.close(back)
        os.close(target)


def mount_proc() -> None:
    """Show the sandbox's processes. Only its first process can: proc shows the pid namespace of who mounts it.

    Raises:
        OSError: it shows another namespace, or nothing.
    """
    kernel.mount("proc", "/proc", "proc", _NOSUID_NODEV | kernel.MS_NOEXEC)
    if os.readlink("/proc/self") != "1":
        raise OSError(errno.EPERM, "/proc shows processes from outside the sandbox")
    hide_in_proc()


def unmount_proc() -> None:
    """Take /proc away from processes that are not to look at others any more.

    Raises:
        OSError: somebody holds on to it (EBUSY).
    """
    for name in (*HIDDEN, *HIDDEN_DIRECTORIES, *WRITABLE_BY_ID, *READABLE_BY_ID):
        if os.path.exists(name):
            try:
                kernel.umount(name, 0)
            except OSError as error:
                if error.errno != errno.EINVAL:  # it was taken away before
                    raise
    kernel.umount("/proc", 0)


def hide_first_in_proc() -> None:
    """Without root its score looks like the sandbox's own; who is killed first is not for the code inside to say."""
    for name in _OF_THE_FIRST:
        if os.path.exists(name):
            kernel.bind(name, name, read_only=True)


def hide_in_proc() -> None:
    for name in HIDDEN:
        if os.path.exists(name):
            kernel.mount("/dev/null", name, None, kernel.MS_BIND)
    for name in HIDDEN_DIRECTORIES:
        if os.path.exists(name):
            kernel.mount(EMPTY_DIRECTORY, name, None, kernel.MS_BIND)


def is_hosts_root() -> bool:
    """Whether this process has the id of the host's root, whatever it is called here."""
    return os.stat("/proc/sys").st_uid == os.geteuid()


def close_proc_to_root() -> None:
    """Where the sandbox's user has the id of the host's root, who lacks rights: with /proc/sys alone he is the host.
    For who is that user himself, and may still mount."""
    if not is_hosts_root():
        return
    for name in WRITABLE_BY_ID:
        if os.path.exists(name):
            kernel.bind(name, name, read_only=True)
    for name in READABLE_BY_ID:
        if os.path.exists(name):
            kernel.mount("/dev/null", name, None, kernel.MS_BIND)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def add_dummy_addresses() -> None:
    """Have an address besides those of the loopback, where there is no network: without one, a C library that is asked
    for addresses of a family that can be used (AI_ADDRCONFIG) finds not even those of "localhost"."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for call, address in ((_SIOCSIFADDR, _DUMMY), (_SIOCSIFNETMASK, "255.255.255.255")):
            ours = struct.pack("16sHH4s8x", b"lo:0", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(sock, call, ours)
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:  # a host without it
        ours = struct.pack("16sIi", socket.inet_pton(socket.AF_INET6, _DUMMY6), 128, socket.if_nametoindex("lo"))
        fcntl.ioctl(sock, _SIOCSIFADDR, ours)


def furnish(box: str, workdir: str) -> None:
    """Mount the sandbox's writable places; `box` is a host path."""
    box = layout.OLD_ROOT + box
    for place, target in layout.targets(workdir).items():
        kernel.bind(f"{box}/{place}", target, read_only=False)


def mount_shared_memory(most: int | None, root: str = "") -> None:
    """`most` is what /dev/shm may hold; a control group counts it as memory, so there it needs no bound."""
    size = "50%" if most is None else str(most)
    kernel.mount("shm", f"{root}/dev/shm", "tmpfs", _NOSUID_NODEV, f"mode=1777,size={size}")


def mount_disk(device: str, box: str, uid: int) -> str:
    """Mount a disk of the sandbox's own, which limits what it can write; gives the place to use as its box."""
    place = f"{box}/mount"
    inside = layout.OLD_ROOT + place
    os.makedirs(inside, exist_ok=True)
    kernel.mount(layout.OLD_ROOT + device, inside, "ext4", DISK_FLAGS, "")
    make_writable(inside, uid)
    return place


def make_writable(directory: str, owner: int | None) -> None:
    """Make the sandbox's writable places in a directory, unless they are there."""
    for name in layout.WRITABLE:
        path = f"{directory}/{name}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        # One that is there may be of somebody who was killed before he had given it away.
        if owner is not None and os.stat(path).st_uid == 0:
            os.chown(path, owner, owner)


def cover(box: str, workdir: str, source: int | str, *, rootless: bool) -> None:
    """Lay a writable layer over `source`, a host path or a detached mount, and show both at the workdir."""
    box = layout.OLD_ROOT + box
    if isinstance(source, int):
        # The lower layer must have a path; the workdir, soon covered, serves.
        kernel.move_mount(source, workdir)
        lower = workdir
    else:
        lower = layout.OLD_ROOT + source
    options = f"lowerdir={escape(lower)},upperdir={escape(box)}/upper,workdir={escape(box)}/scratch"
    options += ",userxattr" if rootless else ",redirect_dir=nofollow"
    try:
        kernel.mount("workspace", workdir, "overlay", _NOSUID_NODEV, options)
    except OSError as error:
        if rootless and error.errno == errno.EINVAL:
            raise OSError(errno.EINVAL, SOMETHING_MOUNTED % source) from error
        raise


def escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def set_rlimits(limits: dict[str, int]) -> None:
    """Per-process limits: always no core files; the rest as the keeper says."""
    # One byte, not none: a core file never fits, and only this keeps the kernel from a host's crash reporter.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    names = {"as": resource.RLIMIT_AS, "nproc": resource.RLIMIT_NPROC, "fsize": resource.RLIMIT_FSIZE}
    for kind, value in (
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        *((names[name], value) for name, value in limits.items()),
    ):
        # The host may allow less: a container often does.
        hard = resource.getrlimit(kind)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _map_ids(uid: int) -> None:
    """Give this process its ids inside a fresh user namespace; nobody else is mapped."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{layout.USER} {uid} 1")
    _write("/proc/self/gid_map", f"{layout.GROUP} {uid} 1")


def close(job: dict[str, Any], filter_code: bytes, *, uid: int, rootless: bool, landlock_abi: int) -> int:
    """Drop everything. What this raises means that no wall stands: the process must end.

    Gives this process's oom_score_adj, open: once the wall stands it could not be opened to be written to.

    Raises:
        OSError: a layer could not be put up.
    """
    kernel.unshare(kernel.CLONE_NEWCGROUP)
    mount_proc()
    score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    hide_first_in_proc()
    # Not before: without root, proc can only be mounted while another one is in sight.
    kernel.umount(layout.OLD_ROOT)
    socket.sethostname(layout.HOST_NAME)
    if job["network"] != "host":
        loopback_up()
    if job["network"] == "none":
        add_dummy_addresses()
    set_rlimits(job["rlimits"])
    os.umask(0o022)
    if not rootless:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        # Changing ids made /proc/self root's; the id maps must still be written.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(kernel.CLONE_NEWUSER)
        _map_ids(uid)
    # The filter refuses new user namespaces too; this one does not depend on it.
    for name, most in OF_THE_USER:
        _write(f"/proc/sys/user/{name}", str(most))
    if rootless:
        close_proc_to_root()
    _drop(job, filter_code, landlock_abi)
    return score


def close_nursed(job: dict[str, Any], filter_code: bytes, *, landlock_abi: int) -> None:
    """What is left of `close` for a process that a nursery has forked; all the rest is done to it from outside.

    Raises:
        OSError: a layer could not be put up.
    """
    kernel.unshare(kernel.CLONE_NEWCGROUP)
    loopback_up()
    if job["network"] == "none":
        add_dummy_addresses()
    os.umask(0o022)
    os.setresgid(layout.GROUP, layout.GROUP, layout.GROUP)
    os.setresuid(layout.USER, layout.USER, layout.USER)
    _drop(job, filter_code, landlock_abi)
    # Until it was looked at: without root nobody could.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def _drop(job: dict[str, Any], filter_code: bytes, landlock_abi: int) -> None:
    # Set again: a change of ids clears it.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if landlock_abi:
        landlock.restrict(landlock_abi, landlock.EVERYWHERE)
    seccomp.install(filter_code)
    os.chdir(job["workdir"])
