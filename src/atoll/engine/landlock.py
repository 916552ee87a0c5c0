"""Landlock: a second file wall, independent of the mounts, that survives a mistake in them.

Beneath the places that it is told, everything may be done that the mounts allow; elsewhere only reading and
executing, or nothing. For good, nobody behind it changes a mount or traces who is not. Where the kernel can, and all of
a sandbox is behind one such wall, abstract sockets and signals of processes outside are out of reach too; where it is
not, namespaces alone see to that.
"""

from __future__ import annotations

import os
import stat
import struct

from . import kernel

_VERSION_FLAG = 1
PATH_BENEATH = 1

_EXECUTE, _READ_FILE, _READ_DIR = 1, 4, 8
_READ_ONLY = _EXECUTE | _READ_FILE | _READ_DIR
# Of a file the kernel takes these rights only: execute, write, read, truncate.
_OF_A_FILE = _EXECUTE | 2 | _READ_FILE | (1 << 14)
# Index is the ABI version: access rights that the kernel of that version knows.
_RIGHTS = (0, (1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1, (1 << 16) - 1)
_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL = 3


# A rule is about the inodes that it was made for, and the writable places of a sandbox are exchanged while it runs:
# what is mounted then would be out of reach. The rest is mounted read-only, and belongs to others; see decision 0009.
EVERYWHERE = ("/",)


def version() -> int:
    """The ABI that this kernel offers; 0 when it has none."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def ruleset(abi: int, *, scoped: bool) -> bytes:
    """The attributes of a ruleset. If `scoped`, nobody outside is reached by a signal or an abstract socket, as the
    kernel counts outside: processes that closed this wall one by one are outside of each other's."""
    scope = _SCOPE_ABSTRACT_SOCKET_AND_SIGNAL if scoped and abi >= 6 else 0
    size = 24 if abi >= 6 else (16 if abi >= 4 else 8)
    return struct.pack("=QQQ", _RIGHTS[min(abi, len(_RIGHTS) - 1)], 0, scope)[:size]


def rules(abi: int, writable: tuple[str, ...], readable: tuple[str, ...] = EVERYWHERE) -> list[tuple[str, int]]:
    """Paths, and what may be done beneath each."""
    rights = _RIGHTS[min(abi, len(_RIGHTS) - 1)]
    return [*((path, _READ_ONLY & rights) for path in readable), *((path, rights) for path in writable)]


def rule(rights: int, fd: int) -> bytes:
    return struct.pack("=Qi", rights, fd)


def _allow(made: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights &= -1 if stat.S_ISDIR(os.fstat(fd).st_mode) else _OF_A_FILE
        kernel.syscall("landlock_add_rule", made, PATH_BENEATH, rule(rights, fd), 0)
    finally:
        os.close(fd)


def restrict(
    abi: int, writable: tuple[str, ...], readable: tuple[str, ...] = EVERYWHERE, *, scoped: bool = True
) -> None:
    """Close the wall around this process and its descendants. Needs no_new_privs.

    Beneath `writable` all may be done, beneath `readable` only reading and executing, and elsewhere nothing.

    Raises:
        OSError: the kernel refused; nothing is restricted then.
    """
    packed = ruleset(abi, scoped=scoped)
    made = kernel.syscall("landlock_create_ruleset", packed, len(packed), 0)
    try:
        for path, rights in rules(abi, writable, readable):
            _allow(made, path, rights)
        kernel.syscall("landlock_restrict_self", made, 0)
    finally:
        os.close(made)
