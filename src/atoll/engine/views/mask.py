"""The mask: a tmpfs that holds every visible path of a tree and no content.

overlayfs takes it as its topmost lower layers. A file of it says, in two attributes, that its content is to be found
in a layer below that serves for content only: names that are not in the mask do not exist in the view, whatever
happens to the source later. What may only be seen is a hole of the right size.

It has up to two parts, each a layer. In `own` is what belongs to the sandbox's user, who is another in each sandbox:
this part is shown to each through an id-mapped mount. In `rest` is all else. To map ids takes time with every look-up,
so it is good to have both; but only the last layer with names may say that content is elsewhere, so a tree with files
that are writable and not empty is all in `own`.
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

OWN, REST = "own", "rest"
ATTRIBUTES = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# From so many files on it is quicker in two processes.
_WORTH_TWO = 1500
_WRITABLE: frozenset[Level] = frozenset(("write",))
_OTHERS: frozenset[Level] = frozenset(("view", "read"))
_SHOWN = _WRITABLE | _OTHERS
_NODES = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}


class Owners(NamedTuple):
    """The ids that a mask uses for the sandbox's user and for the stranger; user and group alike.

    `divided` says that all that may not be written to is the stranger's; else only what may not even be read.
    """

    sandbox: int
    stranger: int
    divided: bool = True


def build(tree: Tree, owners: Owners, namespace: str) -> int:
    """A detached mount of the mask of a tree. `namespace` is where overlayfs looks for its attributes.

    Raises:
        OSError: this process may not mount, or the tmpfs cannot hold the attributes.
    """
    mount = kernel.new_mount("tmpfs", ATTRIBUTES, {"mode": "0755", "nr_inodes": "0", "size": "100%"})
    try:
        with _umask(0):
            _Painter(mount, tree, owners, namespace).paint()
    except BaseException:
        os.close(mount)
        raise
    return mount


def parts_of(tree: Tree, *, divided: bool) -> tuple[str, ...]:
    """The layers that the mask of a tree has, the topmost first."""
    return tuple(part for part, directories in _divide([*tree.visible()], divided=divided).items() if directories)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _divide(shown: list[Directory], *, divided: bool) -> dict[str, set[str]]:
    """The directories of each part."""
    everything = {directory.path for directory in shown}
    if not divided:
        return {OWN: set(), REST: everything}
    if any(map(_has_writable_content, shown)):
        return {OWN: everything, REST: set()}
    own: set[str] = set()
    rest = {""}
    for directory in reversed(shown):
        levels = {entry.level for entry in directory.entries}
        below = {child.path for child in directory.children}
        if looks.of_directory(directory).owned or "write" in levels or below & own:
            own.add(directory.path)
        if directory.path not in own or levels & {"view", "read"} or below & rest:
            rest.add(directory.path)
    return {OWN: own, REST: rest}


def _has_writable_content(directory: Directory) -> bool:
    return any(entry.level == "write" and entry.kind == "file" and entry.shown.st_size for entry in directory.entries)


class _Painter:
    def __init__(self, mount: int, tree: Tree, owners: Owners, namespace: str) -> None:
        self._mount = mount
        self._owners = owners
        self._shown = [*tree.visible()]
        self._parts = _divide(self._shown, divided=owners.divided)
        self._metacopy = f"{namespace}.overlay.metacopy"
        self._redirect = f"{namespace}.overlay.redirect"

    def paint(self) -> None:
        for part, among in self._parts.items():
            for directory in self._shown:
                if directory.path in among:
                    self._make_directory(directory, part)
        worth = sum(len(directory.entries) for directory in self._shown) > _WORTH_TWO
        halves.do_both(lambda half: self._fill_all(self._shown[half::2]), worth=worth)

    def _make_directory(self, directory: Directory, part: str) -> None:
        look = looks.of_directory(directory, divided=self._owners.divided)
        path = f"{part}/{directory.path}" if directory.path else part
        os.mkdir(path, look.mode, dir_fd=self._mount)
        if look.mode & stat.S_ISVTX:
            os.chmod(path, look.mode, dir_fd=self._mount)
        if owner := self._owner(look.owned, "read"):
            os.chown(path, owner, owner, dir_fd=self._mount)

    def _fill_all(self, directories: Sequence[Directory]) -> None:
        both = all(self._parts.values())
        for directory in directories:
            for part, among in self._parts.items():
                if directory.path in among:
                    wanted = _SHOWN if not both else _WRITABLE if part == OWN else _OTHERS
                    self._fill(directory, part, wanted)

    def _fill(self, directory: Directory, part: str, levels: frozenset[Level]) -> None:
        place = os.open(f"{part}/{directory.path}" if directory.path else part, _OPEN, dir_fd=self._mount)
        try:
            prefix = os.fsencode(f"/{directory.path}/" if directory.path else "/")
            for entry in directory.entries:
                if entry.level in levels:
                    if entry.kind == "file":
                        self._make_file(entry, place, prefix)
                    else:
                        self._make_other(entry, place)
            # After its last entry was made: making one changes the time.
            if directory.status is not None:
                os.utime(place, ns=(directory.status.st_atime_ns, directory.status.st_mtime_ns))
        finally:
            os.close(place)

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
