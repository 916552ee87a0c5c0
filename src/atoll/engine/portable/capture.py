"""Writing one layer: a directory of each place, read as overlayfs would, in the form that `portable` describes.

Whatever is read was made by hostile code, or lies in a source that changes meanwhile: nothing is followed, and no
path is looked up but below the directory that is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from .. import kernel
from . import headers, holes
from .headers import Entry

_BELOW = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_XDEV
# A directory that nobody may list, on which something is mounted, or that is gone by now.
_CLOSED = (errno.EACCES, errno.EPERM, errno.EXDEV, errno.ENOENT, errno.ENOTDIR)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST_PATH = 4000


Xattrs = tuple[tuple[bytes, bytes], ...]


class Unportable(Exception):
    """It cannot be written; the message is a sentence."""


class Sink(Protocol):
    """Where a layer is written to."""

    def write(self, data: bytes) -> object: ...


class Eyes(NamedTuple):
    """How a tree is to be seen.

    Args:
        overlay: the prefix of overlayfs' own attributes; empty for a tree that is no layer.
        merged: for a layer, a descriptor of it with all that is below it; made when it is needed first.
        level: of a path, where there are rules: "none" is left out, "view" has no content.
        owner: whose files can be read whatever their mode, as long as those of others are not.
    """

    overlay: str = ""
    merged: Callable[[], int] | None = None
    level: Callable[[str, bool], str] | None = None
    owner: tuple[int, int] | None = None


LAYER_OF_ROOT, LAYER_OF_USER = "trusted.overlay.", "user.overlay."


class Tally:
    """What was written."""

    def __init__(self) -> None:
        self.entries = 0
        self.size = 0
        self.own = True
        """Whether nothing of it came from the layers below."""


class Capture:
    """Writes the trees of one layer to a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._links: dict[tuple[int, int], bytes] = {}
        self.tally = Tally()

    def end(self) -> None:
        self._sink.write(headers.END)

    def tree(self, place: str, root: int, eyes: Eyes) -> None:
        """Write the tree below a descriptor.

        Raises:
            Unportable: paths in it are too long.
            OSError: it cannot be read.
        """
        self.begin(place)
        self.below(root, b"", place.encode(), eyes)

    def begin(self, place: str) -> None:
        """What follows is of this place."""
        self._links.clear()
        self.put(Entry(place.encode(), "directory", 0o755))

    def below(self, root: int, top: bytes, place: bytes, eyes: Eyes) -> None:
        """All that is below `top`, a directory below `root`."""
        pending = [(top, iter(self._names(root, top)))]
        while pending:
            directory, names = pending[-1]
            name = next(names, None)
            if name is None:
                pending.pop()
                continue
            path = directory + b"/" + name if directory else name
            if len(path) > _LONGEST_PATH:
                raise Unportable(
                    f"The snapshot cannot be exported: it has a path of more than {_LONGEST_PATH} bytes, "
                    f"{os.fsdecode(path[:60])!r}…"
                )
            if self.single(root, path, place, eyes):
                pending.append((path, iter(self._names(root, path))))

    def _names(self, root: int, path: bytes) -> list[bytes]:
        try:
            with opened(root, path, _FOLDER) as fd:
                return sorted(map(os.fsencode, os.listdir(fd)))
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            return []

    def single(self, root: int, path: bytes, place: bytes, eyes: Eyes) -> bool:
        """Write one path; whether what is below it is to follow."""
        parent, _, name = path.rpartition(b"/")
        try:
            with opened(root, parent, os.O_PATH | os.O_DIRECTORY) as fd:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                level = "write" if eyes.level is None else eyes.level(os.fsdecode(path), stat.S_ISDIR(status.st_mode))
                if level == "none":
                    return False
                return self._write(root, path, (fd, name), place, status, eyes, hollow=level == "view")
        except FileNotFoundError:
            if eyes.overlay:
                raise
            return False  # the source changes meanwhile

    def _write(
        self,
        root: int,
        path: bytes,
        at: tuple[int, bytes],
        place: bytes,
        status: os.stat_result,
        eyes: Eyes,
        *,
        hollow: bool,
    ) -> bool:
        """Gives what `single` does."""
        full, kind = place + b"/" + path, stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            return self._directory(root, path, place, status, eyes)
        if kind == stat.S_IFCHR and status.st_rdev == 0 and eyes.overlay:
            self.put(Entry(full, "whiteout"))
        elif kind == stat.S_IFLNK:
            self.put(Entry(full, "symlink", 0, status.st_mtime_ns, target=_target(at, hollow)))
        elif kind in (stat.S_IFIFO, stat.S_IFSOCK):
            word = "fifo" if kind == stat.S_IFIFO else "socket"
            self.put(Entry(full, word, status.st_mode & headers.MODES, status.st_mtime_ns))
        elif kind == stat.S_IFREG:
            self._file(full, at, status, eyes, path, hollow=hollow or not _readable(status, eyes))
        return False

    def _directory(self, root: int, path: bytes, place: bytes, status: os.stat_result, eyes: Eyes) -> bool:
        opaque, moved = False, False
        xattrs: Xattrs = ()
        mode = status.st_mode & headers.MODES
        try:
            with opened(root, path, _FOLDER) as fd:
                own, xattrs = xattrs_of(fd, eyes.overlay)
                opaque, moved = own.get("opaque") == b"y", "redirect" in own
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            mode = 0
        moved = moved and eyes.merged is not None
        self.put(
            Entry(place + b"/" + path, "directory", mode, status.st_mtime_ns, opaque=opaque or moved, xattrs=xattrs)
        )
        if moved and eyes.merged is not None:
            # What it shows is elsewhere in the layers below, which nobody but overlayfs finds.
            self.tally.own = False
            self.below(eyes.merged(), path, place, Eyes())
            return False
        return _readable(status, eyes)

    def _file(
        self, full: bytes, at: tuple[int, bytes], status: os.stat_result, eyes: Eyes, path: bytes, *, hollow: bool
    ) -> None:
        same = (status.st_dev, status.st_ino)
        if status.st_nlink > 1 and same in self._links:
            self.put(Entry(full, "link", target=self._links[same]))
            return
        plain = Entry(full, "file", status.st_mode & headers.MODES, status.st_mtime_ns, status.st_size)
        try:
            fd = -1 if hollow else os.open(at[1], _FILE, dir_fd=at[0])
        except PermissionError:
            fd = -1
        if fd < 0:
            self._content(plain._replace(mode=0), -1)
            return
        try:
            own, xattrs = xattrs_of(fd, eyes.overlay)
            if "metacopy" in own and eyes.merged is not None:
                self.tally.own = False
                os.close(fd)
                fd = kernel.openat2(eyes.merged(), os.fsdecode(path), _FILE, _BELOW)
            self._content(plain._replace(size=os.fstat(fd).st_size, xattrs=xattrs), fd)
        finally:
            os.close(fd)
        if status.st_nlink > 1:
            self._links[same] = full

    def _content(self, entry: Entry, fd: int) -> None:
        """A file; without a descriptor one that is nothing but a hole."""
        parts = holes.extents(fd, entry.size) if fd >= 0 else []
        stored = sum(length for _, length in parts)
        if stored == entry.size:
            self.put(entry._replace(stored=stored))
        else:
            text = holes.encode_map(parts)
            text += headers.padding(len(text))
            self.put(entry._replace(stored=stored + len(text), sparse=True))
            self._sink.write(text)
        for start, length in parts:
            self._copy(fd, start, length)
        self._sink.write(headers.padding(stored))
        self.tally.size += stored

    def _copy(self, fd: int, start: int, length: int) -> None:
        while length:
            piece = os.pread(fd, min(holes.CHUNK, length), start)
            if not piece:
                raise OSError(errno.EBUSY, "a file of the source changed while it was read; try again")
            self._sink.write(piece)
            start += len(piece)
            length -= len(piece)

    def put(self, entry: Entry) -> None:
        self._sink.write(headers.encode(entry))
        self.tally.entries += 1


@contextlib.contextmanager
def opened(root: int, path: bytes, flags: int) -> Iterator[int]:
    fd = kernel.openat2(root, os.fsdecode(path) or ".", flags, _BELOW)
    try:
        yield fd
    finally:
        os.close(fd)


def _target(at: tuple[int, bytes], hollow: bool) -> bytes:
    target = os.readlink(at[1], dir_fd=at[0])
    return b"?" * len(target) if hollow else target


def xattrs_of(fd: int, overlay: str) -> tuple[dict[str, bytes], Xattrs]:
    """Those of overlayfs, by their short names, and those of the user."""
    try:
        names = os.listxattr(fd)
    except OSError:
        names = []
    own = {name[len(overlay) :]: os.getxattr(fd, name) for name in names if overlay and name.startswith(overlay)}
    # Whoever reads this may use the attributes of the user for what the other kind is used for here.
    users = [name for name in names if name.startswith("user.") and not name.startswith(LAYER_OF_USER)]
    return own, tuple(sorted((os.fsencode(name[len("user.") :]), os.getxattr(fd, name)) for name in users))


def _readable(status: os.stat_result, eyes: Eyes) -> bool:
    """Whether the sandbox's user, to whom the owner's files are its own, could read it."""
    if eyes.owner is None or status.st_uid == eyes.owner[0]:
        return True
    needed = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
    shift = 3 if status.st_gid == eyes.owner[1] else 0
    return status.st_mode >> shift & needed == needed
