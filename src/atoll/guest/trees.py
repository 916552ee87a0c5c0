"""The operations `pack` and `unpack`: whole trees as one stream."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import Dict, List, Optional, Tuple, Union

from ..wire.frames import DATA_SIZE
from ..wire.tree import DIRECTORY, FILE, SYMLINK, BadTree, Entry, Reader, Writer
from .arguments import Arguments
from .descriptors import write_all
from .files import open_regular
from .jobs import GO_ON, Job, Part, Steps
from .paths import Root, as_bytes, lstat, open_beneath
from .refusal import BUSY, Refused, file_refusal, invalid
from .walking import Step, Walk
from .writing import NewFile

_PERMISSIONS = 0o777


def pack(root: Root, job: Job, arguments: Arguments) -> Steps:
    """What is below a directory, or a single file under its own name. Pipes, sockets and devices are skipped."""
    path = arguments.text("path")
    packer = _Packer(job)
    if stat.S_ISDIR(root.stat(path).st_mode):
        yield from packer.tree(root.open(path, os.O_RDONLY | os.O_DIRECTORY), root.absolute(path))
    else:
        name = posixpath.basename(root.absolute(path))
        yield from packer.file(open_regular(root, path), name, root.absolute(path))
    yield from job.send(packer.writer.end())
    return {"entries": packer.entries, "skipped": packer.skipped}


class _Packer:
    def __init__(self, job: Job) -> None:
        self.writer = Writer()
        self.entries = 0
        self.skipped = 0
        self._job = job

    def tree(self, fd: int, base: str) -> Part:
        with Walk(fd) as walk:
            for step in walk.entries():
                if step is None:
                    yield GO_ON
                else:
                    yield from self._step(step, posixpath.join(base, step.path))

    def _step(self, step: Step, path: str) -> Part:
        mode, mtime = step.stat.st_mode & _PERMISSIONS, step.stat.st_mtime
        if step.is_directory:
            yield from self._entry(Entry(step.path, DIRECTORY, mode, mtime))
        elif step.is_link:
            yield from self._entry(Entry(step.path, SYMLINK, mode, mtime, 0, step.link_target()))
        elif step.is_file:
            yield from self.file(_open_file(step, path), step.path, path)
        else:
            self.skipped += 1

    def file(self, fd: int, name: str, path: str) -> Part:
        try:
            found = os.fstat(fd)
            left = found.st_size
            yield from self._entry(Entry(name, FILE, found.st_mode & _PERMISSIONS, found.st_mtime, left))
            while left:
                data = os.read(fd, min(left, DATA_SIZE))
                if not data:
                    raise Refused(BUSY, "%s became shorter while it was read." % path[:200])
                left -= len(data)
                yield from self._job.send(self.writer.data(data))
                yield GO_ON
        finally:
            os.close(fd)

    def _entry(self, entry: Entry) -> Part:
        self.entries += 1
        try:
            header = self.writer.entry(entry)
        except ValueError as error:
            raise file_refusal(errno.EINVAL, entry.path, "Cannot be packed (%s)" % error) from error
        yield from self._job.send(header)


def _open_file(step: Step, path: str) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(step.name, flags, dir_fd=step.directory)
    except OSError as error:
        raise file_refusal(error.errno or errno.EIO, path) from error


def unpack(root: Root, job: Job, arguments: Arguments) -> Steps:
    """Into a directory, which is made if it is missing. Files that are there are replaced, others stay."""
    path = arguments.text("path")
    root.make_directories(path)
    reader = Reader()
    unpacker = _Unpacker(root.open(path, os.O_RDONLY | os.O_DIRECTORY), root.absolute(path))
    try:
        while True:
            data = yield from job.take()
            if not data:
                break
            for item in _checked(reader, data):
                unpacker.take(item)
                yield GO_ON
        _check_whole(reader)
        unpacker.finish()
    finally:
        unpacker.close()
    return {"entries": reader.entries}


def _checked(reader: Reader, data: bytes) -> List[Union[Entry, bytes]]:
    try:
        return reader.feed(data)
    except BadTree as error:
        raise invalid("The tree is broken: %s." % error) from error


def _check_whole(reader: Reader) -> None:
    try:
        reader.close()
    except BadTree as error:
        raise invalid("The tree is broken: %s." % error) from error


class _Unpacker:
    """Writes entries below a directory, through no link."""

    def __init__(self, fd: int, base: str) -> None:
        self._fd = fd
        self._base = base
        self._parent: Tuple[str, int] = ("", os.dup(fd))
        self._new: Optional[NewFile] = None
        self._entry: Optional[Entry] = None
        self._left = 0
        self._directories: Dict[str, Entry] = {}

    def take(self, item: Union[Entry, bytes]) -> None:
        """Raises Refused."""
        try:
            if isinstance(item, Entry):
                self._entry = item
                self._begin(item)
            elif self._new is not None:
                write_all(self._new.fd, item)
                self._left -= len(item)
            self._complete()
        except OSError as error:
            path = self._base if self._entry is None else posixpath.join(self._base, self._entry.path)
            raise file_refusal(error.errno or errno.EIO, path) from error

    def finish(self) -> None:
        """Give directories their permissions and times: until now files were put into them."""
        for path in sorted(self._directories, reverse=True):
            entry = self._directories[path]
            fd = open_beneath(self._fd, as_bytes(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fchmod(fd, entry.mode)
                os.utime(fd, (entry.mtime, entry.mtime))
            finally:
                os.close(fd)

    def close(self) -> None:
        if self._new is not None:
            self._new.__exit__(None, None, None)
        os.close(self._parent[1])
        os.close(self._fd)

    def _begin(self, entry: Entry) -> None:
        directory, name = self._enter(posixpath.dirname(entry.path)), as_bytes(posixpath.basename(entry.path))
        if entry.type == FILE:
            self._new = NewFile(directory, name)
            self._left = entry.size
        elif entry.type == DIRECTORY:
            self._make_directory(entry, directory, name)
        else:
            self._make_link(entry, directory, name)

    def _complete(self) -> None:
        """Close the file of the last entry once all of its content is there."""
        if self._new is None or self._entry is None or self._left:
            return
        new, self._new = self._new, None
        with new:
            os.utime(new.fd, (self._entry.mtime, self._entry.mtime))
            new.replace(self._entry.mode)

    def _make_directory(self, entry: Entry, directory: int, name: bytes) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=directory)
        except FileExistsError:
            found = lstat(directory, name)
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise
        self._directories[entry.path] = entry

    def _make_link(self, entry: Entry, directory: int, name: bytes) -> None:
        if lstat(directory, name) is not None:
            os.unlink(name, dir_fd=directory)
        os.symlink(as_bytes(entry.target or ""), name, dir_fd=directory)
        os.utime(name, (entry.mtime, entry.mtime), dir_fd=directory, follow_symlinks=False)

    def _enter(self, path: str) -> int:
        """The descriptor of a directory below the start; the last one is kept open."""
        if self._parent[0] != path:
            fd = open_beneath(self._fd, as_bytes(path) or b".", os.O_PATH | os.O_DIRECTORY)
            os.close(self._parent[1])
            self._parent = (path, fd)
        return self._parent[1]
