"""The system calls of the review gate that Python has no name for. Paths are below a directory, and stay there."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

NO_XDEV = 0x01
_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08

_OPENAT2 = 437
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_NOREPLACE, _EXCHANGE = 1, 2
_HOW = struct.Struct("QQQ")
_TRIES = 32

_libc = ctypes.CDLL(None, use_errno=True)
_openat2 = _libc["syscall"]
_openat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_openat2.restype = ctypes.c_long
_renameat2 = _libc["syscall"]
_renameat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_renameat2.restype = ctypes.c_long
_syncfs = _libc["syncfs"]
_syncfs.argtypes = (ctypes.c_int,)


def open_beneath(directory: int, path: str, flags: int, resolve: int = 0) -> int:
    """Open what lies below a directory, through no symbolic link at all; "" is the directory itself.

    A link at the end of the path can be had with O_PATH and O_NOFOLLOW. Raises OSError; with NO_XDEV it is EXDEV
    where the path leads into another mount.
    """
    raw = os.fsencode(path) or b"."
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, resolve | _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    return _retried(directory, raw, how)


def leads_outside(directory: int, path: str) -> bool:
    """Whether a path, with every link on its way followed, leaves the directory. One that leads nowhere does not."""
    how = _HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGICLINKS)
    try:
        os.close(_retried(directory, os.fsencode(path), how))
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
    return False


def _retried(directory: int, path: bytes, how: bytes) -> int:
    """openat2 gives up with EAGAIN where somebody renames directories meanwhile."""
    number = errno.EAGAIN
    for _ in range(_TRIES):
        fd: int = _openat2(_OPENAT2, directory, path, how, len(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def move(source: int, name: str, target: int, new_name: str) -> None:
    """Rename to a name that is free, or raise FileExistsError. Raises OSError."""
    try:
        _rename(source, name, target, new_name, _NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        _move_slowly(source, name, target, new_name)


def _move_slowly(source: int, name: str, target: int, new_name: str) -> None:
    """For file systems that cannot refuse to replace: whoever races with us could lose a file here."""
    try:
        os.stat(new_name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)


def exchange(source: int, name: str, target: int, other: str) -> None:
    """Swap two names that both exist, in one step. Raises OSError; EINVAL where the file system cannot."""
    _rename(source, name, target, other, _EXCHANGE)


def _rename(source: int, name: str, target: int, new_name: str, flags: int) -> None:
    call = _RENAMEAT2.get(os.uname().machine)
    if call is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    if _renameat2(call, source, os.fsencode(name), target, os.fsencode(new_name), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, new_name)


def sync_file_system(directory: int) -> None:
    """Everything on the file system of a directory, onto its disk. Raises OSError."""
    if _syncfs(directory) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
