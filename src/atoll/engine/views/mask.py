"""The mask: a tmpfs that holds every visible path of a tree and no content.

overlayfs takes it as its topmost lower layer. A file of it says, in two attributes, that its content is to be found
in a layer below that serves for content only: names that are not in the mask do not exist in the view, whatever
happens to the source later. What may only be seen is a hole of the right size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ...types import Level
from .. import kernel
from . import halves, looks
from .tree import Directory, Entry, Tree

ATTRIBUTES = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# From so many files on it is quicker in two processes.
_WORTH_TWO = 1500
_NODES = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}


class Owners(NamedTuple):
    """The ids that a mask uses for the sandbox's user and for the stranger; user and group alike.

    `divided` says that all that may not be written to is the stranger's; else only what may not even be read.
    """

    sandbox: int
    stranger: int
    divided: bool = True


def owners_for(tree: Tree) -> Owners:
    """Files are made by id 0, so whoever owns more of the tree is called that."""
    writable = sum(entry.level == "write" for directory in tree.visible() for entry in directory.entries)
    shown = sum(entry.level in ("view", "read") for directory in tree.visible() for entry in directory.entries)
    return Owners(sandbox=0, stranger=1) if writable > shown else Owners(sandbox=1, stranger=0)


def build(tree: Tree, owners: Owners, namespace: str) -> int:
    """A detached mount of the mask of a tree. `namespace` is where overlayfs looks for its attributes.

    Raises:
        OSError: this process may not mount, or the tmpfs cannot hold the attributes.
    """
    mount = kernel.new_mount("tmpfs", ATTRIBUTES, {"mode": "0700", "nr_inodes": "0", "size": "100%"})
    try:
        with _umask(0):
            _Painter(mount, owners, namespace).paint(tree)
    except BaseException:
        os.close(mount)
        raise
    return mount


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _count(directories: Sequence[Directory]) -> int:
    return sum(len(directory.entries) for directory in directories)


class _Painter:
    def __init__(self, mount: int, owners: Owners, namespace: str) -> None:
        self._mount = mount
        self._owners = owners
        self._metacopy = f"{namespace}.overlay.metacopy"
        self._redirect = f"{namespace}.overlay.redirect"

    def paint(self, tree: Tree) -> None:
        look = looks.of_directory(tree.root, divided=self._owners.divided)
        root = os.open(".", _OPEN, dir_fd=self._mount)
        try:
            os.fchmod(root, look.mode)
            owner = self._owner(look.owned, "read")
            os.fchown(root, owner, owner)
            shown = [*tree.visible()]
            for directory in shown:
                if directory.path:
                    self._make_directory(directory, root)
            halves.do_both(lambda half: self._fill_all(shown[half::2], root), worth=_count(shown) > _WORTH_TWO)
        finally:
            os.close(root)

    def _fill_all(self, directories: Sequence[Directory], root: int) -> None:
        for directory in directories:
            place = os.open(directory.path or ".", _OPEN, dir_fd=root)
            try:
                self._fill(directory, place)
            finally:
                os.close(place)

    def _fill(self, directory: Directory, place: int) -> None:
        prefix = os.fsencode(f"/{directory.path}/" if directory.path else "/")
        for entry in directory.entries:
            if entry.level == "none":
                continue
            if entry.kind == "file":
                self._make_file(entry, place, prefix)
            else:
                self._make_other(entry, place)
        # After its last entry was made: making one changes the time.
        if directory.status is not None:
            os.utime(place, ns=(directory.status.st_atime_ns, directory.status.st_mtime_ns))

    def _make_directory(self, directory: Directory, root: int) -> None:
        look = looks.of_directory(directory, divided=self._owners.divided)
        os.mkdir(directory.path, look.mode, dir_fd=root)
        if look.mode & stat.S_ISVTX:
            os.chmod(directory.path, look.mode, dir_fd=root)
        if owner := self._owner(look.owned, "read"):
            os.chown(directory.path, owner, owner, dir_fd=root)

    def _make_file(self, entry: Entry, place: int, prefix: bytes) -> None:
        status = entry.shown
        mode, owned = looks.of_entry(entry.level, status.st_mode)
        fd = os.open(entry.name, _NEW, mode, dir_fd=place)
        try:
            if size := status.st_size:
                os.ftruncate(fd, size)
                if entry.level != "view":
                    os.setxattr(fd, self._metacopy, b"")
                    os.setxattr(fd, self._redirect, prefix + os.fsencode(entry.name))
            if owner := self._owner(owned, entry.level):
                os.fchown(fd, owner, owner)
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(fd)

    def _make_other(self, entry: Entry, place: int) -> None:
        """A symlink, pipe or socket. The latter two lead nowhere: nobody of the host is at their other end."""
        if entry.kind == "symlink":
            os.symlink(looks.link_target(entry), entry.name, dir_fd=place)
        else:
            mode = looks.of_entry(entry.level, entry.shown.st_mode).mode
            os.mknod(entry.name, _NODES[entry.kind] | mode, dir_fd=place)
        if owner := self._owner(entry.level == "write", entry.level):
            os.chown(entry.name, owner, owner, dir_fd=place, follow_symlinks=False)
        times = (entry.shown.st_atime_ns, entry.shown.st_mtime_ns)
        os.utime(entry.name, ns=times, dir_fd=place, follow_symlinks=False)

    def _owner(self, owned: bool, level: Level) -> int:
        if owned or (level != "view" and not self._owners.divided):
            return self._owners.sandbox
        return self._owners.stranger
