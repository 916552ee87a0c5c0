"""A tree of links and copies, for hosts where overlayfs takes no mask.

`plant` is recipe D, without any mount, as root: what may be written belongs to the sandbox's user and is a copy, what
may only be read is the stranger's, or a link to the source's own file where that file's owner and mode already say
the same. The sandbox works in the farm itself. `link` makes a lower layer for an ordinary user's overlay, which
protects the linked files from being written to.

A linked file is the host's: what the host writes into it later is seen. New names are not.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from ...errors import Unsupported
from .. import disk, kernel
from . import looks
from .tree import Directory, Entry, Tree

_BELOW = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_XDEV
_FOLDER = os.O_PATH | os.O_DIRECTORY
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NODES = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}
_STATE = ("user.overlay.", "trusted.overlay.")
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENXIO)


class Users(NamedTuple):
    """The sandbox's user and the stranger; group ids alike."""

    sandbox: int
    stranger: int


def plant(tree: Tree, source: str | int, place: str, users: Users) -> None:
    """Make recipe D's farm in an empty directory.

    Raises:
        Unsupported: this process cannot give files to two users, so nothing would be enforced.
        OSError: the disk is full, or the directory is not empty.
    """
    if os.geteuid() != 0 or users.sandbox == users.stranger or 0 in users:
        raise Unsupported(
            "Path permissions without mounts need root, and two users that are not root.",
            hint="Run as root, or on a host where overlayfs can be mounted.",
        )
    _Planter(tree, source, place, users).run()


def link(tree: Tree, source: str | int, place: str) -> None:
    """Make a lower layer of links in an empty directory, all for one user.

    Raises:
        OSError: the disk is full, or the directory is not empty.
    """
    _Planter(tree, source, place, None).run()


class _Planter:
    def __init__(self, tree: Tree, source: str | int, place: str, users: Users | None) -> None:
        self._tree = tree
        self._users = users
        self._source = source
        self._place = place

    def run(self) -> None:
        source = os.open(self._source, _FOLDER | os.O_CLOEXEC) if isinstance(self._source, str) else self._source
        place = os.open(self._place, _OPEN)
        before = os.umask(0)
        try:
            for directory in self._tree.visible():
                self._plant(directory, source, place)
            # From below: who may not write into a directory makes it so when everything is in it.
            for directory in reversed([*self._tree.visible()]):
                self._finish(directory, place)
        finally:
            os.umask(before)
            os.close(place)
            if isinstance(self._source, str):
                os.close(source)

    def _plant(self, directory: Directory, source: int, place: int) -> None:
        if directory.path:
            os.mkdir(directory.path, 0o700, dir_fd=place)
        shown = [entry for entry in directory.entries if entry.level != "none"]
        if not shown:
            return
        here = os.open(directory.path or ".", _OPEN, dir_fd=place)
        try:
            from_here = kernel.openat2(source, directory.path or ".", _FOLDER, _BELOW)
        except OSError as error:
            os.close(here)
            if error.errno in _GONE:
                return
            raise
        try:
            for entry in shown:
                self._plant_entry(entry, from_here, here)
        finally:
            os.close(here)
            os.close(from_here)

    def _plant_entry(self, entry: Entry, source: int, place: int) -> None:
        if entry.kind == "symlink":
            os.symlink(looks.link_target(entry), entry.name, dir_fd=place)
            self._dress(entry, place, looks.Look(0, owned=entry.level == "write"))
        elif entry.kind != "file":
            look = looks.of_entry(entry.level, entry.shown.st_mode)
            os.mknod(entry.name, _NODES[entry.kind] | look.mode, dir_fd=place)
            self._dress(entry, place, look)
        elif entry.level == "view":
            self._make(entry, -1, place)
        elif not self._link(entry, source, place):
            self._copy(entry, source, place)

    def _link(self, entry: Entry, source: int, place: int) -> bool:
        if self._users is not None and not _is_safe(entry, self._users):
            return False
        try:
            os.link(entry.name, entry.name, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            return error.errno in _GONE
        status = os.stat(entry.name, dir_fd=place, follow_symlinks=False)
        if _same(status, entry.shown) and not _misleads(f"/proc/self/fd/{place}/{entry.name}"):
            return True
        # Not what was judged, or more than that.
        os.unlink(entry.name, dir_fd=place)
        return not stat.S_ISREG(status.st_mode)

    def _copy(self, entry: Entry, source: int, place: int) -> None:
        try:
            reader = os.open(entry.name, _READ, dir_fd=source)
        except PermissionError:
            # Whoever makes the view cannot read it, and neither can the sandbox.
            self._make(entry._replace(level="view"), -1, place)
            return
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        try:
            if stat.S_ISREG(os.fstat(reader).st_mode):
                self._make(entry, reader, place)
        finally:
            os.close(reader)

    def _make(self, entry: Entry, reader: int, place: int) -> None:
        """A file with what `reader` has, or for -1 a hole of the right size."""
        look = looks.of_entry(entry.level, entry.shown.st_mode)
        fd = os.open(entry.name, _NEW, look.mode, dir_fd=place)
        try:
            if reader < 0:
                os.ftruncate(fd, entry.shown.st_size)
            else:
                disk.copy_content(reader, fd)
            if self._users is not None:
                owner = self._users.sandbox if look.owned else self._users.stranger
                os.fchown(fd, owner, owner)
            os.utime(fd, ns=(entry.shown.st_atime_ns, entry.shown.st_mtime_ns))
        finally:
            os.close(fd)

    def _dress(self, entry: Entry, place: int, look: looks.Look) -> None:
        if self._users is not None:
            owner = self._users.sandbox if look.owned else self._users.stranger
            os.chown(entry.name, owner, owner, dir_fd=place, follow_symlinks=False)
        times = (entry.shown.st_atime_ns, entry.shown.st_mtime_ns)
        os.utime(entry.name, ns=times, dir_fd=place, follow_symlinks=False)

    def _finish(self, directory: Directory, place: int) -> None:
        look = looks.of_directory(directory, divided=self._users is not None)
        fd = os.open(directory.path or ".", _OPEN, dir_fd=place)
        try:
            if self._users is not None:
                owner = self._users.sandbox if look.owned else self._users.stranger
                os.fchown(fd, owner, owner)
            os.fchmod(fd, look.mode)
            if directory.status is not None:
                os.utime(fd, ns=(directory.status.st_atime_ns, directory.status.st_mtime_ns))
        finally:
            os.close(fd)


def _is_safe(entry: Entry, users: Users) -> bool:
    """Whether the sandbox may do with the source's own file what its level says, and nothing else."""
    status = entry.shown
    mode = status.st_mode
    runs = bool(mode & stat.S_IXOTH) == bool(mode & 0o111)
    closed = not mode & (stat.S_IWOTH | stat.S_IWGRP | stat.S_ISUID | stat.S_ISGID)
    foreign = users.sandbox not in (status.st_uid, status.st_gid)
    return entry.level == "read" and bool(mode & stat.S_IROTH) and runs and closed and foreign


def _misleads(path: str) -> bool:
    """Whether overlayfs would read something into the attributes of a file of the source."""
    return any(name.startswith(_STATE) for name in os.listxattr(path, follow_symlinks=False))


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino, one.st_mode, one.st_uid) == (
        other.st_dev,
        other.st_ino,
        other.st_mode,
        other.st_uid,
    )
