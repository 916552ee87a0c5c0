"""The directory in the source where an apply gets everything ready, and how it is cleared away."""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

from ..guest.descriptors import write_all
from . import beneath
from .content import Content, read_content
from .judging import STAGING_PREFIX
from .points import reached
from .tree import Tree

_MANY = 64
_ZEROES = bytes(1 << 20)
# Of what the source's file carries beside its content. A capability is for the program that was there before.
_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_access")


class Staging:
    """A private directory in the source's root, open in a `with` block."""

    def __init__(self, root: int, name: str) -> None:
        self.name = name
        self._root = root
        self.fd = beneath.open_beneath(root, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, beneath.NO_XDEV)
        self._count = 0

    @staticmethod
    def new_name() -> str:
        return STAGING_PREFIX + os.urandom(8).hex()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.fd)

    def next_name(self) -> str:
        self._count += 1
        return f"{self._count}"

    def add_file(self, content: int, mode: int, owner: tuple[int, int]) -> tuple[str, Content]:
        """Copy an open file. Gives its name here, and what was copied. Raises OSError."""
        name = self.next_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=self.fd)
        try:
            reached("stage")
            copied = _copy(content, target)
            give_to(target, owner)
            os.fchmod(target, mode)
        finally:
            os.close(target)
        return name, copied

    def keep_attributes(self, name: str, source: Tree, path: str) -> None:
        """Give a file what the one that it replaces carries beside its content, as far as the file system lets us."""
        try:
            old = source.open_file(path)
        except OSError:
            return
        try:
            new = f"/proc/self/fd/{self.fd}/{name}"
            for attribute in os.listxattr(old):
                if attribute.startswith(_KEPT_ATTRIBUTES):
                    os.setxattr(new, attribute, os.getxattr(old, attribute), follow_symlinks=False)
        except OSError:
            pass
        finally:
            os.close(old)

    def add_link(self, target: str, owner: tuple[int, int]) -> str:
        """Raises OSError."""
        name = self.next_name()
        os.symlink(target, name, dir_fd=self.fd)
        if (os.geteuid(), os.getegid()) != owner:
            try:
                os.chown(name, *owner, dir_fd=self.fd, follow_symlinks=False)
            except PermissionError:
                pass  # nobody looks at the owner of a link
        return name

    def add_directory(self, mode: int, owner: tuple[int, int]) -> str:
        """Raises OSError."""
        name = self.next_name()
        os.mkdir(name, 0o700, dir_fd=self.fd)
        fd = beneath.open_beneath(self.fd, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            give_to(fd, owner)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        return name

    def look(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def forget(self, name: str) -> None:
        """Remove something that is not needed after all. Raises OSError."""
        _remove(self.fd, name)

    def sync(self) -> None:
        """Everything that is staged, onto the disk. Raises OSError."""
        if self._count > _MANY:
            beneath.sync_file_system(self.fd)
            return
        for name in os.listdir(self.fd):
            if stat.S_ISREG(self.look(name).st_mode):
                fd = beneath.open_beneath(self.fd, name, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        os.fsync(self.fd)


def give_to(fd: int, owner: tuple[int, int]) -> None:
    """Make someone the owner, as far as this process may. A user without privileges owns what they make."""
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) == owner:
        return
    for uid, gid in (owner, (-1, owner[1])):
        try:
            os.fchown(fd, uid, gid)
            return
        except PermissionError:
            continue


def _copy(source: int, target: int) -> Content:
    def begin() -> None:
        os.ftruncate(target, 0)
        os.lseek(target, 0, os.SEEK_SET)

    def write(piece: bytes) -> None:
        # What was a hole stays one, or a sandbox could fill the disk with what it never had.
        if piece == _ZEROES[: len(piece)]:
            os.lseek(target, len(piece), os.SEEK_CUR)
            return
        write_all(target, piece)

    content = read_content(source, write, begin)
    os.ftruncate(target, os.lseek(target, 0, os.SEEK_CUR))
    return content


def make_staging(root: int, name: str) -> None:
    """Raises OSError."""
    os.mkdir(name, 0o700, dir_fd=root)


def clear_staging(root: int, name: str) -> None:
    """Remove a staging directory with what is in it: files, links and empty directories. Raises OSError."""
    try:
        staging = Staging(root, name)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return
        raise
    with staging:
        for entry in os.listdir(staging.fd):
            reached(f"clear {entry}")
            _remove(staging.fd, entry)
    os.rmdir(name, dir_fd=root)


def _remove(directory: int, name: str) -> None:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        os.rmdir(name, dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)
