"""A directory tree as the rules judge it: every path with its type, status and level.

Nothing is followed and nothing is opened but directories. What cannot be listed is an empty directory, what
vanishes meanwhile was never there, and what another file system is mounted on is empty too: a view shows the tree
of one file system.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol

from ...types import Level
from .. import kernel
from .places import named_places

Kind = Literal["file", "directory", "symlink", "fifo", "socket", "other"]

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
_BELOW = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_XDEV
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME | os.O_NONBLOCK
_VANISHED = (errno.ENOENT, errno.ESTALE, errno.EACCES, errno.EINVAL)
# The kernel takes no longer path; what lies deeper cannot be named in a mask, nor by the sandbox from its workspace.
_LONGEST_PATH = 4000
_LONG = _LONGEST_PATH // 4
_MADE_MODE = stat.S_IFDIR | 0o755


class Levels(Protocol):
    """The part of `policy.rules.Matcher` that is needed here."""

    def level(self, path: str, directory: bool = False) -> Level: ...

    def hides_all_below(self, path: str) -> bool: ...


class Ignored(Protocol):
    """The part of `policy.ignores.Ignores` that is needed here."""

    def ignored(self, path: str, directory: bool) -> bool: ...


class Entry(NamedTuple):
    """What is no directory. Of a hidden one nobody asked the status. `target` is what a symlink says."""

    name: str
    kind: Kind
    level: Level
    status: os.stat_result | None
    target: str = ""

    @property
    def shown(self) -> os.stat_result:
        """The status of one that is not hidden."""
        if self.status is None:
            raise ValueError(f"{self.name!r} is hidden")
        return self.status


class Directory:
    """A directory of the tree, the root being "". `status` is None for one that the rules name and nobody made yet.

    `visible` says whether it, or anything below it, is; `guarded` whether it holds, at any depth, something visible
    that may not be removed or renamed.
    """

    __slots__ = ("children", "entries", "guarded", "level", "name", "path", "readable", "status", "visible")

    def __init__(self, path: str, name: str, level: Level, status: os.stat_result | None) -> None:
        self.path = path
        self.name = name
        self.level = level
        self.status = status
        self.entries: list[Entry] = []
        self.children: list[Directory] = []
        self.visible = level != "none"
        self.guarded = False
        self.readable = True

    @property
    def mode(self) -> int:
        return self.status.st_mode if self.status is not None else _MADE_MODE

    @property
    def effective(self) -> Level:
        """Its level, or "view" for one that is only seen because of what is below it."""
        return "view" if self.visible and self.level == "none" else self.level


class Path(NamedTuple):
    """One path of a tree, as a listing shows it; `path` is relative to the tree."""

    path: str
    kind: Kind
    level: Level
    status: os.stat_result | None


class Tree:
    """A judged tree. `directories` has parents before their children, hidden ones included, but not what is below one
    that hides all."""

    def __init__(self, directories: list[Directory]) -> None:
        self.directories = directories

    @property
    def root(self) -> Directory:
        return self.directories[0]

    def visible(self) -> Iterator[Directory]:
        return (directory for directory in self.directories if directory.visible)

    def paths(self) -> Iterator[Path]:
        """Every path but the root, a directory before what is in it. Hidden ones are there, too, but nothing that is
        below a directory that hides all."""
        for directory in self.directories:
            if directory.path:
                yield Path(directory.path, "directory", directory.effective, directory.status)
            prefix = f"{directory.path}/" if directory.path else ""
            for entry in directory.entries:
                yield Path(prefix + entry.name, entry.kind, entry.level, entry.status)


def compile_tree(
    root: str | int,
    matcher: Levels,
    ignores: Ignored | None = None,
    *,
    before: Callable[[int], object] | None = None,
) -> Tree:
    """Judge the tree below `root`, a directory's path or descriptor.

    `before` is called with the descriptor of each directory before it is listed: who starts to watch it then
    misses nothing that the tree does not have.

    Raises:
        OSError: the root itself cannot be opened or listed.
    """
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if isinstance(root, str) else os.dup(root)
    try:
        walk = _Walk(top, matcher, ignores, before)
        directories = walk.run()
    finally:
        os.close(top)
    for place in named_places(matcher):
        _make_place(directories, place, matcher)
    _settle(directories)
    return Tree(directories)


class _Walk:
    def __init__(
        self, top: int, matcher: Levels, ignores: Ignored | None, before: Callable[[int], object] | None
    ) -> None:
        self._top = top
        self._level = matcher.level
        self._hides_all_below = matcher.hides_all_below
        self._ignores = ignores
        self._before = before

    def run(self) -> list[Directory]:
        root = Directory("", "", self._level("", True), os.stat(self._top))
        self._list(root, self._open(root))
        # It grows while it is gone through: children come after their parents.
        found = [root]
        for directory in found:
            if directory is not root:
                # Not only to save time: what goes on there, such as in `.git`, need not be watched either.
                if directory.level == "none" and self._hides_all_below(directory.path):
                    continue
                try:
                    fd = self._open(directory)
                except OSError:
                    directory.readable = False
                    continue
                self._list(directory, fd)
            found.extend(directory.children)
        return found

    def _open(self, directory: Directory) -> int:
        path = directory.path or "."
        try:
            return kernel.openat2(self._top, path, _LIST, _BELOW)
        except PermissionError:
            # Only the owner may leave the time of access as it is.
            return kernel.openat2(self._top, path, _LIST & ~os.O_NOATIME, _BELOW)

    def _list(self, directory: Directory, fd: int) -> None:
        try:
            if self._before is not None:
                self._before(fd)
            prefix = f"{directory.path}/" if directory.path else ""
            with os.scandir(fd) as entries:
                for entry in entries:
                    try:
                        self._take(directory, prefix, entry, fd)
                    except OSError as error:
                        if error.errno not in _VANISHED:
                            raise
        finally:
            os.close(fd)

    def _take(self, directory: Directory, prefix: str, entry: os.DirEntry[str], fd: int) -> None:
        name = entry.name
        path = prefix + name
        if len(path) > _LONG and len(os.fsencode(path)) > _LONGEST_PATH:
            return
        is_directory = entry.is_dir(follow_symlinks=False)
        if self._ignores is not None and self._ignores.ignored(path, is_directory):
            return
        level = self._level(path, is_directory)
        if is_directory:
            directory.children.append(Directory(path, name, level, entry.stat(follow_symlinks=False)))
        elif level == "none":
            directory.entries.append(Entry(name, _kind(entry), level, None))
        else:
            self._take_visible(directory, entry, level, fd)

    def _take_visible(self, directory: Directory, entry: os.DirEntry[str], level: Level, fd: int) -> None:
        status = entry.stat(follow_symlinks=False)
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
        if kind == "symlink":
            directory.entries.append(Entry(entry.name, kind, level, status, os.readlink(entry.name, dir_fd=fd)))
        elif kind in ("other", "directory"):
            # A device is never shown, whatever the rules say; nor is what has become a directory meanwhile.
            directory.entries.append(Entry(entry.name, "other", "none", None))
        else:
            directory.entries.append(Entry(entry.name, kind, level, status))


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "symlink"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _make_place(directories: list[Directory], place: str, matcher: Levels) -> None:
    """Have a directory that the rules name as writable, with those above it, unless something else has its name."""
    here = directories[0]
    path = ""
    for name in place.split("/"):
        path = f"{path}/{name}" if path else name
        below = next((child for child in here.children if child.name == name), None)
        if below is None:
            if any(entry.name == name for entry in here.entries) or not here.readable:
                return
            below = Directory(path, name, matcher.level(path, True), None)
            here.children.append(below)
            directories.append(below)
        here = below


def _settle(directories: list[Directory]) -> None:
    """From the leaves up: what is visible, and what must not be moved away."""
    for directory in reversed(directories):
        for entry in directory.entries:
            if entry.level != "none":
                directory.visible = True
                if entry.level != "write":
                    directory.guarded = True
        for child in directory.children:
            if child.visible:
                directory.visible = True
                if child.level != "write" or child.guarded:
                    directory.guarded = True
    directories[0].visible = True
