"""What the parts of the engine share: the zygote's findings about this host, and how a birth fails."""

from __future__ import annotations

import errno
import os
import socket
from typing import Literal, NamedTuple

from .cgroups import Hierarchy
from .layout import Layout

# Host ids of sandbox users when root makes them: far from people, services, containers and subuids.
FIRST_UID = 1_900_000_000
# As many as there are pids: one whose id is that of its keeper shares it with nobody who lives.
UIDS = 1 << 22
# The same for nurseries.
FIRST_NURSERY_UID = FIRST_UID - UIDS

ID_PREFIX, _ALPHABET = "sb-", "abcdefghjkmnpqrstuvwxyz23456789"
ID_LENGTH = 15


class Settings(NamedTuple):
    """What the zygote found out once about this host."""

    layout: Layout
    rootless: bool
    hierarchy: Hierarchy | None
    landlock: int
    filter_code: bytes
    template: str
    python: str
    python_path: tuple[str, ...]
    resolver: str
    has_loop: bool
    # How path permissions are enforced here, as `views` calls it; None if they cannot be.
    recipe: Literal["A", "B", "C", "D"] | None
    # For the zygote of a template: the packages that all its sandboxes have, the name of the nursery, the socket on
    # which its nurse tells of it, that on which it is asked, and descriptors that each keeper holds while it lives.
    environment: str = ""
    nursery: str = ""
    nurse: socket.socket | None = None
    orders: socket.socket | None = None
    held: tuple[int, ...] = ()
    # Whether code has the id of the host's root, who lacks rights: the kernel counts no processes of that id.
    hosts_root: bool = False


class BirthFailed(Exception):
    """The sandbox could not be made. `code` is from the driver's closed table."""

    def __init__(self, message: str, code: str = "create_failed") -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Exception, otherwise: str) -> str:
    """What an error is in the driver's closed table."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "disk_full" if full else getattr(error, "code", otherwise)


def started_at(pid: int) -> int:
    """The start time of a process in clock ticks: with the pid it names a process for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def new_id() -> str:
    """A name that nobody can guess and everybody can type."""
    letters = (_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(ID_LENGTH - len(ID_PREFIX)))
    return ID_PREFIX + "".join(letters)
