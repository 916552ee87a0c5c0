"""What must hold while hostile code runs, looked at from outside. Nothing here asks atoll: only the kernel is believed.

`tasks` reads /proc once; the other functions are pure.
"""

import os
from typing import NamedTuple

# Host ids of sandbox users when root makes them, as docs/explanation/security.md promises: nobody else has them.
SANDBOX_IDS = range(1_900_000_000, 1_900_000_000 + (1 << 22))

# How long a task in a sandbox's group may be on its way behind the wall, in seconds: it is born outside.
BIRTH = 8.0


_EXITING = 0x4
# With a filter; and killed by one, a moment before it begins to end (SECCOMP_MODE_DEAD, Linux 5.17).
_FILTERED = (2, 3)


class Task(NamedTuple):
    """A thread of the machine, as the kernel tells of it."""

    pid: int
    tid: int
    started: int
    name: str
    state: str
    ids: tuple[int, ...]
    capabilities: int
    seccomp: int
    no_new_privs: bool
    depth: int
    """In how many pid namespaces it is."""
    mounts: str
    """Its mount namespace; "" where the kernel does not tell."""
    users: str
    groups: str
    """Its control groups, as one text."""
    parent: int = 0

    @property
    def key(self):
        return self.pid, self.tid, self.started


class Fault(NamedTuple):
    """Something that must not be."""

    task: Task
    why: str


def tasks():
    """Every living thread of the machine."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                threads = os.listdir(f"/proc/{name}/task")
            except OSError:
                continue
            found += [task for tid in threads if (task := _task(int(name), int(tid))) is not None]
    return found


def _task(pid, tid):
    top = f"/proc/{pid}/task/{tid}"
    try:
        # Of the thread itself: of a process whose first thread has ended the kernel tells no groups.
        groups = _read(f"{top}/cgroup")
        lines = dict(line.split(":", 1) for line in _read(f"{top}/status").splitlines() if ":" in line)
        fields = _read(f"{top}/stat").rpartition(")")[2].split()
        started, parent = int(fields[19]), int(fields[1])
        state = lines["State"].split()[0]
        # Who is ending runs no code any more, and the kernel shows it in no control group of version 1.
        if state in "ZX" or int(fields[6]) & _EXITING:
            return None
        return Task(
            pid, tid, started, lines["Name"].strip(), state,
            (*map(int, lines["Uid"].split()), *map(int, lines["Gid"].split())),
            int(lines["CapEff"], 16) | int(lines["CapPrm"], 16) | int(lines["CapBnd"], 16) | int(lines["CapAmb"], 16),
            int(lines["Seccomp"]), lines["NoNewPrivs"].strip() == "1", len(lines["NSpid"].split()),
            _link(f"{top}/ns/mnt"), _link(f"{top}/ns/user"), groups, parent,
        )  # fmt: skip
    except (OSError, KeyError, IndexError, ValueError):
        return None  # it ended meanwhile


def _read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def weaknesses(task, host, allowed, shared=frozenset()):
    """Why a task is not behind the wall: nothing if it is.

    `host` is a task of the host's, `allowed` are the ids that it may have there. In what is `shared`, by its name in
    `Task`, a wall promises nothing.
    """
    found = {}
    if any(id not in allowed for id in task.ids):
        found["ids"] = f"it has the host ids {sorted(set(task.ids))}"
    if task.capabilities:
        found["capabilities"] = f"it has capabilities {task.capabilities:x}"
    if task.seccomp not in _FILTERED:
        found["seccomp"] = f"it has no filter (mode {task.seccomp})"
    if not task.no_new_privs:
        found["no_new_privs"] = "it may gain privileges"
    if task.depth <= host.depth:
        found["depth"] = "it is in the host's pid namespace"
    if task.mounts and task.mounts == host.mounts:
        found["mounts"] = "it sees the host's mounts"
    if task.users and task.users == host.users:
        found["users"] = "it is in the host's user namespace"
    return [why for what, why in found.items() if what not in shared]


def escaped(seen, tag, host, allowed, shared=frozenset(), group=""):
    """Tasks that hostile code named, and that are not behind a wall. No task of atoll's ever has such a name.

    Where `allowed` is None hostile code is no task of the host's. Its control groups have `group` in their names.
    """
    return [
        Fault(task, "; ".join(why))
        for task in seen
        if task.name == tag
        and (
            why := ["it runs on the host's kernel"]
            if allowed is None
            else [
                *weaknesses(task, host, allowed, shared),
                *(["it has left its control group"] if group not in task.groups else ()),
            ]
        )
    ]


def misplaced(seen, names, host, allowed, shared=frozenset(), trusted=lambda _task, _seen: False):
    """Tasks in a sandbox's control group that are not behind its wall; some are still on their way there.

    `names` are those of the groups, with some of their path.
    """
    groups = tuple(f"/{name}" for name in names)
    return [
        Fault(task, "; ".join(why))
        for task in seen
        if any(each in task.groups for each in groups)
        and not trusted(task, seen)
        and (why := weaknesses(task, host, allowed or (), shared))
    ]


def shared_ids(seen):
    """Host ids of root's sandboxes that are in more than one user namespace: each id with their number."""
    spaces = {}
    for task in seen:
        if task.ids[0] in SANDBOX_IDS and task.seccomp == 2 and task.users:
            spaces.setdefault(task.ids[0], set()).add(task.users)
    return {id: len(found) for id, found in spaces.items() if len(found) > 1}


class Lasting:
    """Of what is seen again and again, that which was seen for longer than it may be."""

    def __init__(self, patience):
        self._patience = patience
        self._since = {}

    def look(self, keys, now):
        """The keys that have been there at each look since more than `patience` seconds ago."""
        self._since = {key: self._since.get(key, now) for key in keys}
        return {key for key, since in self._since.items() if now - since > self._patience}
