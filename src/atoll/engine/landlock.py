"""Landlock: a second file wall, independent of the mounts, that survives a mistake in them.

Everything below / may be read and executed (the mounts already decide what is there); writing is
allowed only beneath the sandbox's own writable places. Where the kernel can, abstract sockets and
signals of processes outside the wall are out of reach too.
"""

from __future__ import annotations

import os
import struct

from . import kernel

_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _READ_FILE, _READ_DIR = 1, 4, 8
_READ_ONLY = _EXECUTE | _READ_FILE | _READ_DIR
# Index is the ABI version: access rights that the kernel of that version knows.
_RIGHTS = (0, (1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1, (1 << 16) - 1)
_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL = 3


def version() -> int:
    """The ABI that this kernel offers; 0 when it has none."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        packed = struct.pack("=Qi", rights, fd)
        kernel.syscall("landlock_add_rule", ruleset, _PATH_BENEATH, packed, 0)
    finally:
        os.close(fd)


def restrict(abi: int, writable: tuple[str, ...]) -> None:
    """Close the wall around this process and its descendants. Needs no_new_privs.

    Raises:
        OSError: the kernel refused; nothing is restricted then.
    """
    rights = _RIGHTS[min(abi, len(_RIGHTS) - 1)]
    scope = _SCOPE_ABSTRACT_SOCKET_AND_SIGNAL if abi >= 6 else 0
    packed = struct.pack("=QQQ", rights, 0, scope)
    size = 24 if abi >= 6 else (16 if abi >= 4 else 8)
    ruleset = kernel.syscall("landlock_create_ruleset", packed, size, 0)
    try:
        _allow(ruleset, "/", _READ_ONLY & rights)
        for path in writable:
            _allow(ruleset, path, rights)
        kernel.syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
