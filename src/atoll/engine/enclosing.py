"""The wall as system calls that a stopped task is made to make: it then is where the sandbox's first process is.

What `jail.close` does for the first process, for one that joins it later. Nothing of it depends on the task's own
memory or good will.
"""

from __future__ import annotations

import os
import struct

from . import kernel, landlock, layout
from .batch import Batch
from .settings import Settings

NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)
_RESOLVE_NO_SYMLINKS = 4
_FILTER_MODE = 1
_LAST = 0xFFFFFFFF
_NO_CHANGE = b"0"


def join_groups(batch: Batch, doors: range) -> None:
    """Have it enter control groups; `doors` are descriptors of `cgroups.Group.doors`."""
    zero = batch.data(_NO_CHANGE)
    for door in doors:
        batch.call("write", door, zero, len(_NO_CHANGE))


def enclose(batch: Batch, settings: Settings, first: int, workdir: str) -> None:
    """Have it join the first process's namespaces and drop everything.

    Args:
        first: the task's descriptor of that process. All from this on are closed.
    """
    batch.call("setgroups", 0, 0)
    batch.call("setns", first, NAMESPACES)
    batch.call("close_range", first, _LAST, 0)
    batch.call("umask", 0o022)
    batch.call("setresgid", *(layout.GROUP,) * 3)
    batch.call("setresuid", *(layout.USER,) * 3)
    drop_capabilities(batch)
    batch.call("prctl", kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    batch.call("prctl", kernel.PR_SET_DUMPABLE, 0, 0, 0, 0)
    batch.call("chdir", batch.text(workdir))
    if settings.landlock:
        _restrict(batch, settings.landlock, landlock.EVERYWHERE, first)
    code = settings.filter_code
    program = struct.pack("HxxxxxxP", len(code) // 8, batch.data(code))
    batch.call("seccomp", _FILTER_MODE, 0, batch.data(program))


def drop_capabilities(batch: Batch) -> None:
    """What `kernel.drop_capabilities` does."""
    for capability in range(kernel.LAST_CAPABILITY + 1):
        batch.call("prctl", kernel.PR_CAPBSET_DROP, capability, 0, 0, 0)
    batch.call("prctl", kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    batch.call("prctl", kernel.PR_SET_SECUREBITS, kernel.SECUREBITS_LOCKED, 0, 0, 0)
    batch.call("capset", batch.data(kernel.CAPABILITY_HEADER), batch.data(bytes(24)))


def _restrict(batch: Batch, abi: int, writable: tuple[str, ...], free: int) -> None:
    """`free` is the lowest descriptor that is not in use: what is opened next is known to be that one."""
    packed = landlock.ruleset(abi, scoped=False)
    batch.call("landlock_create_ruleset", batch.data(packed), len(packed), 0)
    how = batch.data(struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS))
    for path, rights in landlock.rules(abi, writable):
        batch.call("openat2", kernel.AT_FDCWD, batch.text(path), how, 24)
        allowed = batch.data(landlock.rule(rights, free + 1))
        batch.call("landlock_add_rule", free, landlock.PATH_BENEATH, allowed, 0)
        batch.call("close", free + 1)
    batch.call("landlock_restrict_self", free, 0)
    batch.call("close", free)
