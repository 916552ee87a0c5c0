"""The system calls openat2 and renameat2: opening and renaming by the kernel's own rules. The host uses them too."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

NO_XDEV = 0x01
NO_MAGICLINKS = 0x02
NO_SYMLINKS = 0x04
BENEATH = 0x08
IN_ROOT = 0x10
NOREPLACE, EXCHANGE = 1, 2

_OPENAT2 = 437
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_HOW = struct.Struct("QQQ")
_TRIES = 32

_libc = ctypes.CDLL(None, use_errno=True)
_openat2 = _libc["syscall"]
_openat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_openat2.restype = ctypes.c_long
_renameat2 = _libc["syscall"]
_renameat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_renameat2.restype = ctypes.c_long


def openat2(directory: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    """A descriptor of what a path leads to, by the ways that `resolve` allows. Raises OSError.

    The kernel gives up with EAGAIN where somebody renames directories meanwhile, and is asked again.
    """
    how = _HOW.pack(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)
    number = errno.EAGAIN
    for _ in range(_TRIES):
        fd: int = _openat2(_OPENAT2, directory, path, how, len(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def renameat2(source: int, name: bytes, target: int, new_name: bytes, flags: int) -> None:
    """Raises OSError; EINVAL where the file system cannot."""
    call = _RENAMEAT2.get(os.uname().machine)
    if call is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    if _renameat2(call, source, name, target, new_name, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, new_name)


def move(source: int, name: bytes, target: int, new_name: bytes) -> None:
    """Rename to a name that is free, or raise FileExistsError. Raises OSError."""
    try:
        renameat2(source, name, target, new_name, NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # This file system cannot refuse by itself; whoever races with us could lose a file here.
        try:
            os.stat(new_name, dir_fd=target, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name) from None
