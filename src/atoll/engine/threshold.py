"""Starting a program of ours inside a user namespace of its own, where root has not lent its rights.

Linux lets a process be held, and its memory be looked at, by who has the right to in the user namespace that the
process's program was *started* in, wherever it went since. So what is to hold sandboxes is started inside.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import kernel
from .settings import FIRST_NURSERY_UID, FIRST_UID, UIDS
from .subids import Mapper

crossed = False
"""Whether this process was started inside."""


# CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, SETPCAP, NET_ADMIN, SYS_ADMIN.
_NEEDED = sum(1 << number for number in (0, 1, 5, 6, 7, 8, 12, 21))


_SETFCAP = 1 << 31


def is_rootless() -> bool:
    """Whether what root needs is not there: its ids and capabilities too. The root of most containers lacks some."""
    return os.geteuid() != 0 or not _has_ids() or not has_capabilities()


def has_capabilities() -> bool:
    """Whether this process has the capabilities with which root makes sandboxes."""
    return _capabilities() & _NEEDED == _NEEDED


def may_map_root() -> bool:
    """Whether this process may have its user namespace below know the id 0 of this one (Linux 5.12)."""
    return bool(_capabilities() & _SETFCAP)


def _capabilities() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)


def _has_ids() -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    return any(start <= FIRST_NURSERY_UID and start + count >= FIRST_UID + UIDS for start, _, count in ranges)


def enter() -> None:
    """Move this process into a user and a mount namespace of its own, in which it is root.

    Where its user has subordinate ids there is a second one, 1, for what may only be seen; see `views`.

    Raises:
        OSError: the host forbids it.
    """
    uid, gid = os.getuid(), os.getgid()
    mapper = Mapper(uid, gid)
    try:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    except OSError:
        mapper.map(moved=False)
        raise
    write_map("setgroups", "deny")
    if mapper.map(moved=True):
        return
    for name, text in (("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", encoding="ascii") as file:
            done = file.read()
        if not done:
            write_map(name, text)


def write_map(name: str, text: str) -> None:
    """Say who is who in this process's user namespace. Raises OSError."""
    try:
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, f"{name}: {error.strerror}") from error


def start(code: str, ready: int) -> None:
    """Run some code, as another program inside where root is not there to run it.

    `ready` is a descriptor of this process that the code gets too, and that is told why it could not be run.
    """
    if not is_rootless():
        exec(code, {"__name__": "__main__"})  # noqa: S102 - it is the caller's own
        return
    try:
        enter()
        _protect(sys.executable)
    except OSError as error:
        os.write(ready, str(error).encode())
        raise SystemExit(1) from error
    _become(f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import inside; inside({code!r})")


def _protect(program: str) -> None:
    """Have the interpreter on a read-only mount: what a process runs it can reach as /proc/self/exe, past every other
    mount, and the user's own could be given another mode from there."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    kernel.bind(os.path.realpath(program), os.path.realpath(program), read_only=True)


def inside(code: str) -> None:
    """What `start` goes on with."""
    global crossed  # noqa: PLW0603 - it is so for this process's whole life
    crossed = True
    exec(code, {"__name__": "__main__"})  # noqa: S102 - see `start`


def _become(code: str) -> NoReturn:
    """By a descriptor: a sandbox can read the arguments of its first process, and they shall not name our paths."""
    source, feed = os.pipe()
    os.write(feed, code.encode(errors="surrogateescape"))
    os.close(feed)
    os.dup2(source, 0)
    os.set_inheritable(0, True)  # `dup2` does nothing where it is that one already
    # As `launch` does it.
    argv = [sys.executable, "-I", "-S", "-c", "exec(open(0).read())"]
    os.execve(sys.executable, argv, {"PATH": "/usr/bin:/bin"})  # noqa: S606 - our own interpreter
