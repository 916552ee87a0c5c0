"""Writing a tree that a guest sent beneath a directory of the host, and never anywhere else.

The guest is hostile. Every step down is one `openat` that follows no link, whoever made it, so no name
and no order of entries leads out. What the guest sends can only be files, directories, and on request
symbolic links, with permission bits and nothing more.
"""

from __future__ import annotations

import errno
import os

from ..errors import FileError, ProtocolError, file_error
from ..guest.descriptors import write_all
from ..policy.text import short
from ..types import Transfer
from ..wire.tree import DIRECTORY, FILE, BadTree, Entry, Reader

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_ENTRIES = 1 << 20
# What is left out is kept as text, and costs the guest nothing.
_MOST_SKIPPED = 32 << 20


class Landing:
    """Takes the stream piece by piece.

    Args:
        root: an open directory; it stays the caller's to close.
        name: how errors call it.
        overwrite: files that are there may be replaced; otherwise the directory must be empty.
    """

    def __init__(self, root: int, name: str, *, overwrite: bool, symlinks: bool, max_size: int) -> None:
        self._root = root
        self._name = name
        self._overwrite = overwrite
        self._symlinks = symlinks
        self._room = max_size
        self._reader = Reader(MAX_ENTRIES)
        self._parent = ""
        self._parent_fd = -1
        self._file = -1
        self._entry = Entry("", FILE)
        self._place = ""
        self._secret = f".atoll-{os.urandom(8).hex()}"
        self._left = 0
        self._counts = dict.fromkeys((FILE, DIRECTORY, "symlink", "size"), 0)
        self._skipped: list[str] = []
        self._skipped_room = _MOST_SKIPPED

    def take(self, data: bytes) -> None:
        """Raises ProtocolError for what no honest guest sends, FileError for what the host refuses."""
        try:
            for item in self._reader.feed(data):
                if isinstance(item, Entry):
                    self._begin(item)
                else:
                    self._write(item)
        except BadTree as error:
            raise ProtocolError(f"The guest sent a broken tree: {error}.") from error
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise self._refused(error) from error

    def finish(self) -> Transfer:
        """Raises ProtocolError when the tree is not whole."""
        try:
            self._reader.close()
        except BadTree as error:
            raise ProtocolError(f"The guest sent a broken tree: {error}.") from error
        counts = self._counts
        return Transfer(counts[FILE], counts[DIRECTORY], counts["symlink"], counts["size"], tuple(self._skipped))

    def close(self) -> None:
        """Give back descriptors. A file that is not whole is removed."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)
            os.unlink(self._place, dir_fd=self._parent_fd)
        self._leave()

    def _begin(self, entry: Entry) -> None:
        self._entry = entry
        self._room -= entry.size
        if self._room < 0:
            raise FileError(
                f"The tree is larger than max_size; no more of it was written to {self._name}.", errno=errno.EFBIG
            )
        parent, _, name = entry.path.rpartition("/")
        self._enter(parent)
        if entry.type == FILE:
            self._begin_file(entry, name)
        elif entry.type == DIRECTORY:
            self._make_directory(entry, name)
        elif self._symlinks:
            self._make_link(entry.target or "", name)
        else:
            self._skip(entry.path)
            return
        self._counts[entry.type] += 1

    def _skip(self, path: str) -> None:
        self._skipped_room -= len(path)
        if self._skipped_room < 0:
            raise FileError(
                "The tree has too many symbolic links to name; download a smaller directory, or give symlinks=True.",
                errno=errno.EFBIG,
            )
        self._skipped.append(path)

    def _begin_file(self, entry: Entry, name: str) -> None:
        self._place = self._free_name(name)
        self._file = os.open(self._place, _NEW_FILE, entry.mode | 0o600, dir_fd=self._parent_fd)
        self._left = entry.size
        self._counts["size"] += entry.size
        if not self._left:
            self._end_file(name)

    def _write(self, content: bytes) -> None:
        write_all(self._file, content)
        self._left -= len(content)
        if not self._left:
            self._end_file(self._entry.path.rpartition("/")[2])

    def _end_file(self, name: str) -> None:
        os.utime(self._file, (self._entry.mtime, self._entry.mtime))
        self._put_in_place(name)
        file, self._file = self._file, -1
        os.close(file)

    def _make_directory(self, entry: Entry, name: str) -> None:
        try:
            os.mkdir(name, entry.mode | 0o700, dir_fd=self._parent_fd)
        except FileExistsError:
            if not self._overwrite:
                raise
            # It must be a directory, and not a link to one.
            os.close(os.open(name, _DIRECTORY, dir_fd=self._parent_fd))

    def _make_link(self, target: str, name: str) -> None:
        self._place = self._free_name(name)
        os.symlink(target, self._place, dir_fd=self._parent_fd)
        try:
            self._put_in_place(name)
        except BaseException:
            os.unlink(self._place, dir_fd=self._parent_fd)
            raise

    def _free_name(self, name: str) -> str:
        """Where something may be in the way, a name that the guest cannot guess, until the new is whole."""
        return self._secret if self._overwrite else name

    def _put_in_place(self, name: str) -> None:
        if self._place != name:
            os.rename(self._place, name, src_dir_fd=self._parent_fd, dst_dir_fd=self._parent_fd)
            self._place = name

    def _enter(self, parent: str) -> None:
        """Open a directory, one name at a time, each without following a link."""
        if self._parent_fd >= 0 and parent == self._parent:
            return
        self._leave()
        fd = os.dup(self._root)
        for name in parent.split("/") if parent else ():
            try:
                below = os.open(name, _DIRECTORY, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        self._parent, self._parent_fd = parent, fd

    def _leave(self) -> None:
        if self._parent_fd >= 0:
            fd, self._parent_fd = self._parent_fd, -1
            os.close(fd)

    def _refused(self, error: OSError) -> FileError:
        path = f"{self._name}/{self._entry.path}"
        return file_error(error.errno or errno.EIO, f"{error.strerror}: {short(path)}", path)
