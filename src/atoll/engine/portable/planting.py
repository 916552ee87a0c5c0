"""Making one layer of what a file says of it: into a fresh directory, nothing followed, nobody else's ids."""

from __future__ import annotations

import errno
import os
import stat

from .. import kernel
from . import PLACES, Damaged, headers, holes
from .capture import LAYER_OF_ROOT, LAYER_OF_USER
from .headers import Entry
from .stream import Part

_BELOW = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_XDEV
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH, _LONGEST_NAME = 4095, 255
_MOST_XATTRS = 256
_LARGEST_FILE = 16 << 40
_LARGEST_MAP = 64 << 20
_LOOK_AT_SPACE = 16 << 20
_SPARE = 64 << 20


class Ground:
    """Where layers are made.

    Args:
        owner: whose the files are; None for those of this process.
        watched: a directory on the disk that must not become full.
    """

    def __init__(self, owner: int | None, watched: str) -> None:
        self.owner = owner
        self.prefix = LAYER_OF_USER if owner is None else LAYER_OF_ROOT
        self._watched = watched
        self._unseen = 0

    def check_space(self, written: int) -> None:
        """Raises OSError: what was written since is about to fill the disk."""
        self._unseen += written
        if self._unseen >= _LOOK_AT_SPACE:
            self._unseen = 0
            found = os.statvfs(self._watched)
            if found.f_bavail * found.f_frsize < _SPARE:
                raise OSError(errno.ENOSPC, "the disk of atoll's state directory is almost full")


class Planter:
    """Makes one layer below a descriptor of an empty directory."""

    def __init__(self, root: int, ground: Ground) -> None:
        self._root = root
        self._ground = ground
        self._last: list[bytes] = []
        self._open: list[Entry] = []
        self._parent = (b"", os.dup(root))

    def close(self) -> None:
        os.close(self._parent[1])

    def plant(self, part: Part) -> None:
        """Make all that a part of the file tells of.

        Raises:
            Damaged: it is not what an export writes.
            OSError: the disk is full, or refuses something.
        """
        while (entry := part.entry()) is not None:
            self._check(entry)
            self._leave(entry.path)
            self._make(entry, part)
            self._ground.check_space(entry.stored + holes.BLOCK)
        self._leave(b"")

    def _check(self, entry: Entry) -> None:
        names = entry.path.split(b"/")
        if len(entry.path) > _LONGEST_PATH or not all(map(_is_name, names)):
            raise Damaged(f"{_shown(entry.path)} is no path that can be")
        if names[0].decode("ascii", "replace") not in PLACES or names <= self._last:
            raise Damaged(f"{_shown(entry.path)} comes where it cannot be")
        if len(names) == 1 and entry != Entry(entry.path, "directory", 0o755):
            raise Damaged(f"{_shown(entry.path)} is not the beginning of a place")
        if entry.size > _LARGEST_FILE or len(entry.xattrs) > _MOST_XATTRS:
            raise Damaged(f"{_shown(entry.path)} is larger than a file can be")
        for name, _ in entry.xattrs:
            if not _is_name(name) or name.startswith(b"overlay."):
                raise Damaged(f"{_shown(entry.path)} has an attribute that it cannot have")
        self._last = names

    def _make(self, entry: Entry, part: Part) -> None:
        parent, _, name = entry.path.rpartition(b"/")
        try:
            directory = self._directory(parent)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise Damaged(f"{_shown(entry.path)} lies in no directory") from None
            raise
        if entry.kind == "directory":
            os.mkdir(name, 0o700, dir_fd=directory)
            self._open.append(entry)
        elif entry.kind == "file":
            self._file(entry, directory, name, part)
        elif entry.kind == "link":
            self._link(entry, directory, name)
        else:
            self._special(entry, directory, name)

    def _directory(self, path: bytes) -> int:
        """The last one stays open: what follows most often lies in it, too."""
        if path != self._parent[0]:
            found = kernel.openat2(self._root, os.fsdecode(path) or ".", os.O_PATH | os.O_DIRECTORY, _BELOW)
            os.close(self._parent[1])
            self._parent = (path, found)
        return self._parent[1]

    def _file(self, entry: Entry, directory: int, name: bytes, part: Part) -> None:
        fd = os.open(name, _NEW, 0o600, dir_fd=directory)
        try:
            os.ftruncate(fd, entry.size)
            for start, length in self._parts(entry, part):
                self._fill(fd, start, length, part)
            self._finish(fd, entry)
        finally:
            os.close(fd)
        if any(part.read(-entry.stored % headers.BLOCK)):
            raise Damaged("there is something between two files")

    def _parts(self, entry: Entry, part: Part) -> holes.Extents:
        if not entry.sparse:
            return [(0, entry.size)] if entry.size else []
        text, seen, lines = bytearray(), 0, 1
        while seen < lines:
            if len(text) >= min(entry.stored, _LARGEST_MAP):
                raise Damaged(f"{_shown(entry.path)} has a map of its content that cannot be")
            block = part.read(headers.BLOCK)
            text += block
            seen += block.count(b"\n")
            if lines == 1 and seen:
                lines += 2 * _count(bytes(text))
        numbers = [_number(line) for line in bytes(text).split(b"\n")[1:lines]]
        parts = list(zip(numbers[::2], numbers[1::2], strict=True))
        holes.check(parts, entry.size)
        written = holes.encode_map(parts)
        stored = len(text) + sum(size for _, size in parts)
        if written + headers.padding(len(written)) != text or stored != entry.stored:
            raise Damaged(f"{_shown(entry.path)} has a map of its content that cannot be")
        return parts

    def _fill(self, fd: int, start: int, length: int, part: Part) -> None:
        while length:
            piece = memoryview(part.read(min(holes.CHUNK, length)))
            length -= len(piece)
            while piece:
                written = os.pwrite(fd, piece, start)
                start += written
                piece = piece[written:]
            self._ground.check_space(holes.CHUNK)

    def _finish(self, fd: int, entry: Entry) -> None:
        """Attributes first, the mode and the time last: each changes what follows."""
        for name, value in entry.xattrs:
            os.setxattr(fd, b"user." + name, value)
        if entry.opaque:
            os.setxattr(fd, f"{self._ground.prefix}opaque", b"y")
        if self._ground.owner is not None:
            os.fchown(fd, self._ground.owner, self._ground.owner)
        os.fchmod(fd, entry.mode)
        os.utime(fd, ns=(entry.mtime, entry.mtime))

    def _link(self, entry: Entry, directory: int, name: bytes) -> None:
        """Another name of a file of this layer and place, which came before."""
        parent, _, target = entry.target.rpartition(b"/")
        names = entry.target.split(b"/")
        if not all(map(_is_name, names)) or not names < self._last or names[0] != self._last[0]:
            raise Damaged(f"{_shown(entry.path)} is a link to what cannot be linked to")
        try:
            source = kernel.openat2(self._root, os.fsdecode(parent), os.O_PATH | os.O_DIRECTORY, _BELOW)
        except OSError:
            raise Damaged(f"{_shown(entry.path)} is a link to what is not there") from None
        try:
            if not _is_file(target, source):
                raise Damaged(f"{_shown(entry.path)} is a link to what is no file")
            os.link(target, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(source)

    def _special(self, entry: Entry, directory: int, name: bytes) -> None:
        if entry.kind == "whiteout":
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=directory)
            return
        if entry.kind == "symlink":
            if len(entry.target) > _LONGEST_PATH or b"\0" in entry.target:
                raise Damaged(f"{_shown(entry.path)} is a link that cannot be")
            os.symlink(entry.target, name, dir_fd=directory)
        else:
            kind = stat.S_IFIFO if entry.kind == "fifo" else stat.S_IFSOCK
            os.mknod(name, kind | entry.mode, dir_fd=directory)
        if self._ground.owner is not None:
            os.chown(name, self._ground.owner, self._ground.owner, dir_fd=directory, follow_symlinks=False)
        os.utime(name, ns=(entry.mtime, entry.mtime), dir_fd=directory, follow_symlinks=False)

    def _leave(self, path: bytes) -> None:
        """Finish the directories that nothing more comes into."""
        while self._open and not path.startswith(self._open[-1].path + b"/"):
            entry = self._open.pop()
            fd = kernel.openat2(self._root, os.fsdecode(entry.path), os.O_RDONLY | os.O_DIRECTORY, _BELOW)
            try:
                self._finish(fd, entry)
            finally:
                os.close(fd)


def _is_name(name: bytes) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name not in (b".", b"..") and b"\0" not in name and b"/" not in name


def _is_file(name: bytes, directory: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _count(text: bytes) -> int:
    count = _number(text.partition(b"\n")[0])
    if count > _LARGEST_MAP:
        raise Damaged("a file has a map of its content that cannot be")
    return count


def _number(line: bytes) -> int:
    if not line.isdigit() or len(line) > 19:
        raise Damaged("a file has a map of its content that cannot be")
    return int(line)


def _shown(path: bytes) -> str:
    text = os.fsdecode(path[:80])
    return ascii(text) + ("…" if len(path) > 80 else "")
