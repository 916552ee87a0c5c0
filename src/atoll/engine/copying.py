"""Copying a tree that hostile code made: any depth, any names, nothing followed.

Modes are kept but for the set-uid bits of files, which mean nothing behind a wall: a copy lies on a file system of the
host's, which heeds them. The only device that is copied is what overlayfs takes for a removed name.

Names of one file stay names of one file, holes stay holes, and where the file system can share blocks nothing is
copied at all. What it is copied from must stand still.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from . import disk

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CLONE = 0x40049409
_CHUNK = 1 << 20
_MODE, _MODE_OF_FOLDER = 0o1777, 0o3777
_NO_DEVICE = os.makedev(0, 0)
# What overlayfs writes down, and what the user has; nothing else says anything inside a wall.
_KEPT = ("user.", "trusted.overlay.")
_NOT_HERE = frozenset((errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EBADF))


class _Level(NamedTuple):
    """A directory on the way down: what is left to do in it, and how to know it again on the way up."""

    names: Iterator[str]
    status: os.stat_result
    copy: tuple[int, int]


def copy_tree(source: str, target: str, owners: Mapping[int, int] | None = None) -> int:
    """Make the directory `target`, a copy of another; gives how many bytes it takes.

    `owners` says whose files become whose. A process that may not own others' files, as they are, makes its own.

    Raises:
        OSError: something of it cannot be read, or the disk is full. What was made so far is left.
    """
    os.mkdir(target, 0o700)
    links = f"{target}.links"
    os.mkdir(links, 0o700)
    fds = [os.open(source, _FOLDER), os.open(target, _FOLDER), os.open(links, _FOLDER)]
    try:
        copier = _Copier(fds[0], fds[1], fds[2], owners or {})
        fds = [copier.links]
        try:
            copier.run()
        finally:
            copier.close()
        with os.scandir(copier.links) as entries:
            for entry in list(entries):
                os.unlink(entry.name, dir_fd=copier.links)
    finally:
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            os.rmdir(links)
    return copier.size


class _Copier:
    """Holds two directories open, whatever the depth.

    Args:
        links: a directory in which each file with several names gets one more until all are made.
    """

    def __init__(self, source: int, target: int, links: int, owners: Mapping[int, int]) -> None:
        self._source, self._target, self.links = source, target, links
        self._owners = owners
        self._levels: list[_Level] = []
        self.size = 0

    def run(self) -> None:
        self._enter()
        while True:
            level = self._levels[-1]
            name = next(level.names, None)
            if name is None:
                if not self._leave():
                    return
                continue
            status = os.stat(name, dir_fd=self._source, follow_symlinks=False)
            self.size += status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(name, 0o700, dir_fd=self._target)
                self._go(name)
                self._enter()
            else:
                self._one(name, status)

    def close(self) -> None:
        os.close(self._source)
        os.close(self._target)

    def _go(self, name: str) -> None:
        source = os.open(name, _FOLDER, dir_fd=self._source)
        try:
            target = os.open(name, _FOLDER, dir_fd=self._target)
        except BaseException:
            os.close(source)
            raise
        self.close()
        self._source, self._target = source, target

    def _enter(self) -> None:
        copy = os.fstat(self._target)
        names = iter(os.listdir(self._source))
        self._levels.append(_Level(names, os.fstat(self._source), (copy.st_dev, copy.st_ino)))

    def _leave(self) -> bool:
        """Finish a directory and go up; whether there is anything above it."""
        level = self._levels.pop()
        self._attributes(self._source, self._target)
        self._finish(self._target, level.status)
        if not self._levels:
            return False
        self._go("..")
        above, copy = os.fstat(self._source), os.fstat(self._target)
        known = self._levels[-1]
        if not os.path.samestat(above, known.status) or (copy.st_dev, copy.st_ino) != known.copy:
            raise OSError(errno.EBUSY, "a directory was moved while it was copied")
        return True

    def _one(self, name: str, status: os.stat_result) -> None:
        """Anything but a directory."""
        if status.st_nlink > 1 and self._linked(name, status):
            return
        if stat.S_ISREG(status.st_mode):
            self._file(name, status)
        else:
            if stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=self._source), name, dir_fd=self._target)
            else:
                if status.st_rdev != _NO_DEVICE:
                    return
                os.mknod(name, stat.S_IFMT(status.st_mode) | 0o600, _NO_DEVICE, dir_fd=self._target)
                os.chmod(name, status.st_mode & _MODE, dir_fd=self._target)
            self._give(name, status, self._target)
            os.utime(name, ns=(status.st_mtime_ns,) * 2, dir_fd=self._target, follow_symlinks=False)
        if status.st_nlink > 1:
            os.link(name, _key(status), src_dir_fd=self._target, dst_dir_fd=self.links, follow_symlinks=False)

    def _linked(self, name: str, status: os.stat_result) -> bool:
        """Whether it is another name of what was copied before, and is now."""
        try:
            os.link(_key(status), name, src_dir_fd=self.links, dst_dir_fd=self._target, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _file(self, name: str, status: os.stat_result) -> None:
        reader = os.open(name, _OLD, dir_fd=self._source)
        try:
            writer = os.open(name, _NEW, 0o600, dir_fd=self._target)
            try:
                _content(reader, writer)
                self._attributes(reader, writer)
                self._finish(writer, status)
            finally:
                os.close(writer)
        finally:
            os.close(reader)

    def _attributes(self, reader: int, writer: int) -> None:
        try:
            names = os.listxattr(reader)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            names = []
        for name in names:
            if name.startswith(_KEPT):
                os.setxattr(writer, name, os.getxattr(reader, name))

    def _finish(self, fd: int, status: os.stat_result) -> None:
        """The owner first and the time last: each changes what follows."""
        self._give(fd, status)
        os.fchmod(fd, status.st_mode & (_MODE_OF_FOLDER if stat.S_ISDIR(status.st_mode) else _MODE))
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _give(self, what: int | str, status: os.stat_result, directory: int | None = None) -> None:
        user, group = (self._owners.get(each, each) for each in (status.st_uid, status.st_gid))
        if os.geteuid() == 0 and isinstance(what, int):
            os.fchown(what, user, group)
        elif os.geteuid() == 0:
            os.chown(what, user, group, dir_fd=directory, follow_symlinks=False)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}-{status.st_ino}"


def _content(reader: int, writer: int) -> None:
    try:
        fcntl.ioctl(writer, _CLONE, reader)
        return
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    try:
        disk.copy_content(reader, writer)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        os.ftruncate(writer, 0)
        _read_and_write(reader, writer)


def _read_and_write(reader: int, writer: int) -> None:
    """To another file system. A hole that became zeros there would be a way to fill the host's disk with nothing."""
    for start, end in disk.extents(reader):
        position = start
        while position < end and (piece := os.pread(reader, min(_CHUNK, end - position), position)):
            done = 0
            while done < len(piece):
                done += os.pwrite(writer, piece[done:], position + done)
            position += len(piece)
    os.ftruncate(writer, os.fstat(reader).st_size)
