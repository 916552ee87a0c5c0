"""The kernel's file events, through ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import List, NamedTuple

from .refusal import BUSY, UNSUPPORTED, Refused

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED, IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORY, _DO_NOT_FOLLOW, _EXCLUDE_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_WANTED = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF | _EXCLUDE_UNLINKED

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class Happening(NamedTuple):
    watch: int
    mask: int
    name: bytes


class Inotify:
    """Raises Refused where the kernel has none left to give."""

    def __init__(self) -> None:
        self.fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            number = ctypes.get_errno()
            code = BUSY if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM) else UNSUPPORTED
            raise Refused(code, "This sandbox cannot watch files: %s." % os.strerror(number))

    def add(self, directory: int) -> int:
        """Watch an open directory or file; the number of the watch.

        Raises:
            Refused: the limit on watches is reached.
        """
        watch: int = _libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % directory, _WANTED)
        if watch < 0:
            number = ctypes.get_errno()
            if number == errno.ENOSPC:
                raise Refused(BUSY, "There are more directories than this host lets a user watch (fs.inotify).")
            raise OSError(number, os.strerror(number))
        return watch

    def remove(self, watch: int) -> None:
        """One that the kernel has dropped already is no error."""
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> List[Happening]:
        """What has happened, [] for nothing."""
        try:
            data = os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return []
        found, position = [], 0
        while position < len(data):
            watch, mask, _cookie, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            found.append(Happening(watch, mask, data[position : position + length].rstrip(b"\0")))
            position += length
        return found

    def close(self) -> None:
        os.close(self.fd)
