"""What WASI preview 1 looks like in memory: its numbers for errors and kinds of files, and its records. Pure."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable
from typing import Any

_NAMES = """
SUCCESS 2BIG ACCES ADDRINUSE ADDRNOTAVAIL AFNOSUPPORT AGAIN ALREADY BADF BADMSG BUSY CANCELED CHILD CONNABORTED
CONNREFUSED CONNRESET DEADLK DESTADDRREQ DOM DQUOT EXIST FAULT FBIG HOSTUNREACH IDRM ILSEQ INPROGRESS INTR INVAL
IO ISCONN ISDIR LOOP MFILE MLINK MSGSIZE MULTIHOP NAMETOOLONG NETDOWN NETRESET NETUNREACH NFILE NOBUFS NODEV
NOENT NOEXEC NOLCK NOLINK NOMEM NOMSG NOPROTOOPT NOSPC NOSYS NOTCONN NOTDIR NOTEMPTY NOTRECOVERABLE NOTSOCK
NOTSUP NOTTY NXIO OVERFLOW OWNERDEAD PERM PIPE PROTO PROTONOSUPPORT PROTOTYPE RANGE ROFS SPIPE SRCH STALE
TIMEDOUT TXTBSY XDEV NOTCAPABLE
""".split()  # noqa: SIM905 - a list of so many texts is five times as long
"""In the order of their numbers."""

_ERRORS = {getattr(errno, f"E{name}"): number for number, name in enumerate(_NAMES) if hasattr(errno, f"E{name}")}
_IO = _NAMES.index("IO")
NOSYS, INVAL = _NAMES.index("NOSYS"), _NAMES.index("INVAL")

UNKNOWN, CHARACTER_DEVICE, DIRECTORY, REGULAR, SYMBOLIC_LINK = 0, 2, 3, 4, 7
_KINDS = {stat.S_IFDIR: DIRECTORY, stat.S_IFREG: REGULAR, stat.S_IFLNK: SYMBOLIC_LINK}

# Of path_open and fd_fdstat.
CREATE, WANT_DIRECTORY, EXCLUSIVE, TRUNCATE = 1, 2, 4, 8
APPEND = 1
_SEEK, _TELL = 1 << 2, 1 << 5
READ, WRITE = 1 << 1, 1 << 6
_ALL = (1 << 30) - 1
FOLLOW = 1

_FDSTAT = struct.Struct("<BxHxxxxQQ")
_FILESTAT = struct.Struct("<QQBxxxxxxxQQQQQ")
_DIRENT = struct.Struct("<QQIB3x")
PRESTAT = struct.Struct("<II")
SUBSCRIPTION = struct.Struct("<QB7xI4xQQH6x")
EVENT = struct.Struct("<QHB5xQH6x")
IOVEC = struct.Struct("<II")
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


def number_of(error: OSError) -> int:
    """WASI's number for an error of the host's."""
    return _ERRORS.get(error.errno or 0, _IO)


def failure(number: int) -> OSError:
    """An error to raise."""
    return OSError(number, os.strerror(number))


def kind_of(mode: int) -> int:
    return _KINDS.get(stat.S_IFMT(mode), UNKNOWN)


def fdstat(kind: int, *, writable: bool, append: bool) -> bytes:
    """What may be done with an open file."""
    rights = _ALL if writable else _ALL & ~WRITE
    if kind == CHARACTER_DEVICE:
        rights &= ~(_SEEK | _TELL)
    return _FDSTAT.pack(kind, APPEND if append else 0, rights, _ALL)


def filestat(found: os.stat_result) -> bytes:
    """The device is left out: it says something about the host."""
    return _FILESTAT.pack(
        1,
        found.st_ino,
        kind_of(found.st_mode),
        found.st_nlink,
        found.st_size,
        max(0, found.st_atime_ns),
        max(0, found.st_mtime_ns),
        max(0, found.st_ctime_ns),
    )


DEVICE = _FILESTAT.pack(0, 0, CHARACTER_DEVICE, 1, 0, 0, 0, 0)
"""What is told of standard input and output."""


def dirent(following: int, inode: int, name: bytes, kind: int) -> bytes:
    return _DIRENT.pack(following, inode, len(name), kind) + name


Function = Callable[..., Any]
