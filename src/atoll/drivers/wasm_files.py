"""The file operations of WASI, done by the host for an instance."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time

from . import wasm_abi as abi
from .wasm_memory import Memory
from .wasm_table import NULL, Opened, Parent, Table, open_at, open_plain

_WHENCE = (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END)
_SET_ATIME, _ATIME_NOW, _SET_MTIME, _MTIME_NOW = 1, 2, 4, 8
_BIGGEST_FILE = (1 << 63) - 1


class Files:
    """Methods have the names and arguments of WASI's functions. They give None, or raise OSError."""

    memory: Memory

    def __init__(self, table: Table) -> None:
        self.table = table

    def fd_close(self, fd: int) -> None:
        self.table.close(fd)

    def fd_read(self, fd: int, vectors: int, count: int, read: int) -> None:
        file = self.table.get(fd)
        if file.fd == NULL:
            self.memory.put_size(read, 0)
            return
        self.memory.put_size(read, os.readv(file.regular(), self.memory.vectors(vectors, count)))

    def fd_pread(self, fd: int, vectors: int, count: int, offset: int, read: int) -> None:
        file = self.table.get(fd)
        pieces = self.memory.vectors(vectors, count)
        self.memory.put_size(read, os.preadv(file.regular(), pieces, _offset(offset)))

    def fd_write(self, fd: int, vectors: int, count: int, written: int) -> None:
        file = self.table.get(fd)
        pieces = self.memory.vectors(vectors, count)
        is_lost = file.fd == NULL
        self.memory.put_size(written, sum(map(len, pieces)) if is_lost else os.writev(file.to_write(), pieces))

    def fd_pwrite(self, fd: int, vectors: int, count: int, offset: int, written: int) -> None:
        file = self.table.get(fd)
        pieces = self.memory.vectors(vectors, count)
        self.memory.put_size(written, os.pwritev(file.to_write(), pieces, _offset(offset)))

    def fd_seek(self, fd: int, offset: int, whence: int, new: int) -> None:
        file = self.table.get(fd)
        if file.kind != abi.REGULAR or whence >= len(_WHENCE):
            raise abi.failure(errno.ESPIPE)
        signed = offset - (1 << 64) if offset >> 63 else offset
        self.memory.put_long(new, os.lseek(file.regular(), signed, _WHENCE[whence]))

    def fd_tell(self, fd: int, new: int) -> None:
        self.fd_seek(fd, 0, 1, new)

    def fd_advise(self, fd: int, _offset: int, _length: int, _advice: int) -> None:
        self.table.get(fd)

    def fd_allocate(self, fd: int, offset: int, length: int) -> None:
        os.posix_fallocate(self.table.get(fd).to_write(), _offset(offset), _offset(length))

    def fd_datasync(self, fd: int) -> None:
        os.fdatasync(self.table.get(fd).real())

    def fd_sync(self, fd: int) -> None:
        os.fsync(self.table.get(fd).real())

    def fd_fdstat_get(self, fd: int, at: int) -> None:
        file = self.table.get(fd)
        self.memory.write(at, abi.fdstat(file.kind, writable=file.writable, append=file.append))

    def fd_fdstat_set_flags(self, fd: int, flags: int) -> None:
        file = self.table.get(fd)
        if file.kind != abi.REGULAR:
            return
        now = fcntl.fcntl(file.real(), fcntl.F_GETFL)
        file.append = bool(flags & abi.APPEND)
        fcntl.fcntl(file.real(), fcntl.F_SETFL, now | os.O_APPEND if file.append else now & ~os.O_APPEND)

    def fd_filestat_get(self, fd: int, at: int) -> None:
        file = self.table.get(fd)
        is_device = file.kind == abi.CHARACTER_DEVICE
        self.memory.write(at, abi.DEVICE if is_device else abi.filestat(os.fstat(file.real())))

    def fd_filestat_set_size(self, fd: int, size: int) -> None:
        os.ftruncate(self.table.get(fd).to_write(), _offset(size))

    def fd_filestat_set_times(self, fd: int, accessed: int, modified: int, flags: int) -> None:
        real = self.table.get(fd).to_write()
        os.utime(real, ns=_times(os.fstat(real), accessed, modified, flags))

    def fd_prestat_get(self, fd: int, at: int) -> None:
        self.memory.write(at, abi.PRESTAT.pack(0, len(_granted(self.table.get(fd)))))

    def fd_prestat_dir_name(self, fd: int, at: int, length: int) -> None:
        name = _granted(self.table.get(fd))
        if len(name) > length:
            raise abi.failure(errno.ENAMETOOLONG)
        self.memory.write(at, name)

    def fd_readdir(self, fd: int, at: int, length: int, cookie: int, used: int) -> None:
        directory = self.table.get(fd)
        if directory.kind != abi.DIRECTORY:
            raise abi.failure(errno.ENOTDIR)
        if cookie == 0:
            directory.entries = _entries(directory.real())
        listed = bytearray()
        for number, (name, inode, kind) in enumerate(directory.entries[cookie:], cookie + 1):
            listed += abi.dirent(number, inode, name, kind)
            if len(listed) >= length:
                break
        # One that does not fit is cut: that the buffer is full tells the instance to ask again.
        self.memory.write(at, bytes(listed[:length]))
        self.memory.put_size(used, min(len(listed), length))

    def path_create_directory(self, fd: int, path: int, length: int) -> None:
        with Parent(self.table.get(fd), self.memory.read(path, length)) as parent:
            os.mkdir(parent.name, dir_fd=parent.fd)

    def path_filestat_get(self, fd: int, flags: int, path: int, length: int, at: int) -> None:
        if _is_null(self.table.get(fd), self.memory.read(path, length)):
            self.memory.write(at, abi.DEVICE)
            return
        real = self._path(fd, flags, path, length)
        try:
            found = os.fstat(real)
        finally:
            os.close(real)
        self.memory.write(at, abi.filestat(found))

    def path_filestat_set_times(
        self, fd: int, flags: int, path: int, length: int, accessed: int, modified: int, which: int
    ) -> None:
        if not self.table.get(fd).writable:
            raise abi.failure(errno.EROFS)
        real = self._path(fd, flags, path, length)
        try:
            times = _times(os.fstat(real), accessed, modified, which)
            # Of what the descriptor stands for, be it a link.
            os.utime(f"/proc/self/fd/{real}", ns=times)
        finally:
            os.close(real)

    def path_link(self, fd: int, flags: int, old: int, old_length: int, new_fd: int, new: int, length: int) -> None:
        with (
            Parent(self.table.get(fd), self.memory.read(old, old_length)) as source,
            Parent(self.table.get(new_fd), self.memory.read(new, length)) as target,
        ):
            if flags & abi.FOLLOW:
                raise abi.failure(errno.EINVAL)
            os.link(source.name, target.name, src_dir_fd=source.fd, dst_dir_fd=target.fd, follow_symlinks=False)

    def path_open(
        self, fd: int, flags: int, path: int, length: int, how: int, rights: int, _inherited: int, mode: int, new: int
    ) -> None:
        directory = self.table.get(fd)
        name = self.memory.read(path, length)
        if _is_null(directory, name):
            self.memory.put_size(new, self.table.add(Opened(NULL, abi.CHARACTER_DEVICE)))
            return
        writes = bool(rights & abi.WRITE)
        changes = writes or how & (abi.CREATE | abi.TRUNCATE)
        if changes and not directory.writable:
            raise abi.failure(errno.EROFS)
        wanted = _access(rights, how) | _how(how, flags, mode)
        real, found = open_plain(directory, name, wanted, 0o666)
        kind = abi.kind_of(found.st_mode)
        writable = directory.writable if kind == abi.DIRECTORY else writes
        opened = Opened(real, kind, writable=writable, append=bool(mode & abi.APPEND))
        self.memory.put_size(new, self.table.add(opened))

    def path_readlink(self, fd: int, path: int, length: int, at: int, room: int, used: int) -> None:
        with Parent(self.table.get(fd), self.memory.read(path, length), to_write=False) as parent:
            target = os.readlink(parent.name, dir_fd=parent.fd)[:room]
        self.memory.write(at, target)
        self.memory.put_size(used, len(target))

    def path_remove_directory(self, fd: int, path: int, length: int) -> None:
        with Parent(self.table.get(fd), self.memory.read(path, length)) as parent:
            os.rmdir(parent.name, dir_fd=parent.fd)

    def path_rename(self, fd: int, old: int, old_length: int, new_fd: int, new: int, length: int) -> None:
        with (
            Parent(self.table.get(fd), self.memory.read(old, old_length)) as source,
            Parent(self.table.get(new_fd), self.memory.read(new, length)) as target,
        ):
            os.rename(source.name, target.name, src_dir_fd=source.fd, dst_dir_fd=target.fd)

    def path_symlink(self, target: int, target_length: int, fd: int, path: int, length: int) -> None:
        with Parent(self.table.get(fd), self.memory.read(path, length)) as parent:
            os.symlink(self.memory.read(target, target_length), parent.name, dir_fd=parent.fd)

    def path_unlink_file(self, fd: int, path: int, length: int) -> None:
        with Parent(self.table.get(fd), self.memory.read(path, length)) as parent:
            os.unlink(parent.name, dir_fd=parent.fd)

    def _path(self, fd: int, flags: int, path: int, length: int) -> int:
        follow = 0 if flags & abi.FOLLOW else os.O_NOFOLLOW
        return open_at(self.table.get(fd), self.memory.read(path, length), os.O_PATH | follow)


def _is_null(directory: Opened, name: bytes) -> bool:
    """The one device that there is: much code takes it for granted. It is not listed."""
    return directory.guest_path == b"/" and name.lstrip(b"/") == b"dev/null"


def _offset(value: int) -> int:
    if value > _BIGGEST_FILE:
        raise abi.failure(errno.EINVAL)
    return value


def _granted(opened: Opened) -> bytes:
    if opened.guest_path is None:
        raise abi.failure(errno.EBADF)
    return opened.guest_path


def _access(rights: int, how: int) -> int:
    if how & abi.WANT_DIRECTORY:
        return os.O_RDONLY
    if not rights & abi.WRITE:
        return os.O_RDONLY
    return os.O_RDWR if rights & abi.READ else os.O_WRONLY


def _how(how: int, flags: int, mode: int) -> int:
    wanted = {
        os.O_CREAT: how & abi.CREATE,
        os.O_DIRECTORY: how & abi.WANT_DIRECTORY,
        os.O_EXCL: how & abi.EXCLUSIVE,
        os.O_TRUNC: how & abi.TRUNCATE,
        os.O_NOFOLLOW: not flags & abi.FOLLOW,
        os.O_APPEND: mode & abi.APPEND,
    }
    return sum(flag for flag, asked in wanted.items() if asked)


def _times(found: os.stat_result, accessed: int, modified: int, flags: int) -> tuple[int, int]:
    now = time.time_ns()
    first, second = found.st_atime_ns, found.st_mtime_ns
    if flags & (_SET_ATIME | _ATIME_NOW):
        first = now if flags & _ATIME_NOW else _offset(accessed)
    if flags & (_SET_MTIME | _MTIME_NOW):
        second = now if flags & _MTIME_NOW else _offset(modified)
    return first, second


def _entries(fd: int) -> list[tuple[bytes, int, int]]:
    """Names, inodes and kinds, with those of the directory itself, as C has them."""
    here = os.fstat(fd).st_ino
    found = [(b".", here, abi.DIRECTORY), (b"..", here, abi.DIRECTORY)]
    with os.scandir(fd) as listing:
        for entry in listing:
            kind = abi.UNKNOWN
            with contextlib.suppress(OSError):
                kind = abi.kind_of(entry.stat(follow_symlinks=False).st_mode)
            found.append((os.fsencode(entry.name), entry.inode(), kind))
    return found
