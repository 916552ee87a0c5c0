"""Looking at a hostile process from outside, by the kernel's word alone.

What is looked at cannot be undone: capabilities do not come back, and who is alone in its namespaces, holds no
descriptor and no memory of others, finds nobody to get them from.
"""

from __future__ import annotations

import os
import stat

Identity = tuple[int, int]

_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_NULL = os.makedev(1, 3)


class Broken(Exception):
    """A process is not as it must be: it is hostile, and so is all that was forked where it was."""


def status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def children(pid: int) -> set[int]:
    """Those of its first thread, at one moment. Nobody can be missed: an orphan comes to process 1 of its namespace."""
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        return {int(each) for each in file.read().split()}


def identity(fd: int | str) -> Identity:
    """What tells an open file from all others."""
    found = os.stat(fd)
    return found.st_dev, found.st_ino


def _filters(facts: dict[str, str]) -> int | None:
    """How many it has; None before Linux 5.9, which does not say."""
    return int(facts["Seccomp_filters"]) if "Seccomp_filters" in facts else None


def check_closed(pid: int, uid: int, *, filters: int = 2) -> None:
    """No capability, no way to get one, all filters, and the one id.

    Raises:
        Broken: its wall does not stand.
    """
    facts = status(pid)
    wrong = [name for name in _CAPABILITIES if int(facts[name], 16)]
    wrong += [name for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")) if facts[name] != value]
    # The nursery's and its own, and those that atoll itself was started with.
    outer = _filters(status(os.getpid()))
    if outer is not None and _filters(facts) != outer + filters:
        wrong.append("Seccomp_filters")
    wrong += [name for name in ("Uid", "Gid") if set(facts[name].split()) != {str(uid)}]
    if facts["Groups"]:
        wrong.append("Groups")
    if wrong:
        raise Broken(f"a process did not close its wall: {', '.join(wrong)} in its status")


def check_single(pid: int) -> None:
    """That a first process, whose wall stands, is alone in its namespace.

    In this order: whatever it makes after the look at its wall has no capability either. Without another thread
    all others in the namespace are below the first one.

    Raises:
        Broken: it is not.
    """
    check_threads(pid)
    if others := children(pid):
        raise Broken(f"a process has made {len(others)} others before its wall was closed")


def check_threads(pid: int) -> None:
    """Raises: Broken: it has more than one."""
    facts = status(pid)
    if facts["State"][0] in "ZX":
        raise ProcessLookupError(f"process {pid} is dead")
    if (threads := int(facts["Threads"])) != 1:
        raise Broken(f"the packages have started {threads - 1} threads")


def check_descriptors(pid: int, allowed: set[Identity]) -> None:
    """That it has these open and /dev/null, and nothing else that it could share with others.

    Raises:
        Broken: it has more.
    """
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        found = os.stat(path)
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL:
            continue
        if (found.st_dev, found.st_ino) not in allowed:
            raise Broken(f"a process keeps {os.readlink(path)} open")


def check_memory(pid: int) -> None:
    """That it shares no memory that can be written to. A file that has a name is on a mount that is read-only.

    Raises:
        Broken: it does.
    """
    with open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            fields = line.split(None, 5)
            path = fields[5].rstrip() if len(fields) > 5 else b""
            if fields[1][3:4] != b"s":
                continue
            if fields[1][1:2] == b"w" or not path.startswith(b"/") or path.endswith(b" (deleted)"):
                raise Broken("the packages have made memory that processes share")
