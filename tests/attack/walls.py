"""What each wall offers to an attack, and what it promises of the tasks behind it.

An operation that a driver does not declare is left out of its rounds, and so are attackers that cannot run there.
"""

import asyncio
import functools
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

from tests.attack import attackers, judge

from atoll import errors, registry
from atoll.engine.settings import FIRST_UID, UIDS
from atoll.io import BlockingIO
from atoll.types import Capability

_NEEDED = {
    "snapshot": Capability.SNAPSHOT, "rollback": Capability.SNAPSHOT, "forget": Capability.SNAPSHOT,
    "fork": Capability.FORK, "set_permissions": Capability.PERMISSIONS, "pause": Capability.PAUSE,
    "stop": Capability.STOP, "checkpoint": Capability.STOP, "set_lifetime": Capability.LIFETIME,
    "metrics": Capability.METRICS, "run": Capability.COMMANDS, "run_code": Capability.CODE,
}  # fmt: skip


# What first has each context keep its variables.
_KEEPING = ("snapshot", "fork", "stop", "checkpoint")


class Wall(NamedTuple):
    """A wall, as far as an attack is concerned.

    Args:
        kinds: of attackers that can run behind it.
        users: who can make its sandboxes.
        stays: whether attackers go on in the cell that began them, for there is nothing else that could.
        group: what the name of a sandbox's control group begins with, where root makes it.
        ids: the host's that its tasks have where root makes it; None where hostile code is no task of the host's.
        shared: of what `judge.Task` knows of a wall's tasks, what they may have in common with the host.
        busy: how long, in seconds, a steward may serve nobody else while its wall is frozen, exchanged or made anew.
        keeping: how long attackers in contexts may take over keeping their variables, all together.
        trusted: whether a task in a sandbox's group is atoll's own, or the runtime's, and runs nobody's code.
    """

    name: str
    kinds: tuple[str, ...]
    users: tuple[str, ...] = ("root", "user")
    stays: bool = False
    group: str = "/atoll/"
    ids: range | None = judge.SANDBOX_IDS
    shared: frozenset[str] = frozenset()
    busy: float = 0.0
    keeping: float = 0.0
    trusted: Callable[..., bool] = lambda _task, _seen: False

    def patience(self, operation):
        """How much longer than elsewhere an operation may take here, in seconds."""
        return self.busy + (self.keeping if operation in _KEEPING else 0.0)

    @property
    def lacks(self):
        """The operations that it does not have."""
        return _lacks(self.name)


@functools.cache
def _lacks(name):
    capabilities = registry.load(name, BlockingIO()).capabilities
    return frozenset(operation for operation, needed in _NEEDED.items() if needed not in capabilities)


def missing(name):
    """Why no attack on a wall can be played here; nothing where it can."""
    user = "root" if os.getuid() == 0 else "user"
    if user not in WALLS[name].users:
        return f"the {name} driver needs another user"
    if name == "docker" and shutil.which("dockerd") is None:
        return "needs dockerd (apt-get install docker.io)"
    try:
        driver = registry.load(name, BlockingIO())
        layers = asyncio.run(driver.health()) if name != "docker" else []
    except errors.AtollError as error:
        return str(error)
    return ", ".join(layer.detail for layer in layers if layer.required and not layer.ready)


def _is_runtime(task, _seen):
    """`runsc run`, which waits for the end of the others."""
    return task.name == "runsc"


def _is_guest(task, seen):
    """The guest is outside; contexts are below it, and so have a parent in the group."""
    return all(each.groups != task.groups for each in seen if each.pid == task.parent)


_NATIVE = attackers.NATIVE
# gVisor's kernel shows no code of its own in a process.
_OF_THE_VDSO = ("rewrite", "rewrite_in_a_crowd", "spoil")
WALLS = {
    wall.name: wall
    for wall in (
        Wall("jail", _NATIVE),
        Wall("bwrap", _NATIVE),
        Wall(
            "docker", _NATIVE, ("root",), group="/docker/", ids=range(FIRST_UID + UIDS, 1 << 31),
            shared=frozenset(("users",)), busy=12.0,
        ),
        # Its own files are gVisor's to keep apart; the process that does it needs rights for that, behind its filter.
        Wall(
            "gvisor", tuple(kind for kind in _NATIVE if kind not in _OF_THE_VDSO), ids=None,
            shared=frozenset(("ids", "capabilities", "depth", "users")), busy=12.0, trusted=_is_runtime,
        ),
        # Nothing but the filter, Landlock and the lack of rights is around an instance: it can name nothing else.
        Wall(
            "wasm", attackers.INSTANCE, ("root",) if os.getuid() == 0 else ("user",), stays=True, ids=None,
            shared=frozenset(("ids", "depth", "mounts", "users")), keeping=190.0, trusted=_is_guest,
        ),
    )
}  # fmt: skip
