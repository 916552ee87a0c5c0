"""Files by their content, each stored once for all codebases of this user, and linked into the trees that hold them.

A link has the mode and the time of what it links to, so these belong to a blob's name. A blob that no tree holds has
one link, and nobody who stores files is at work: then it can go.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator

from ..guest.descriptors import write_all
from . import locks
from .manifest import Entry
from .walking import Stamp

_SMALL = 1 << 20
_PIECE = 1 << 20
_TRIES = 100
_NOTHING = bytes(_PIECE)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# File systems without hard links say one of these.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.ENOSYS)


class Changed(Exception):
    """A file is not what it was a moment ago."""


class Blobs:
    """All methods raise OSError where the disk refuses. Use it inside `storing`.

    `written` counts bytes. `unsure` are the files that may not be on the disk yet: those that were stored here, and
    those that were found, which somebody else may just be storing.
    """

    def __init__(self, home: str) -> None:
        self._place = f"{home}/blobs"
        self._lock = f"{home}/blobs.lock"
        self._token = os.urandom(8).hex()
        self._count = 0
        self.written = 0
        self.unsure: list[str] = []

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """Nobody removes a blob meanwhile."""
        os.makedirs(f"{self._place}/new", mode=0o700, exist_ok=True)
        with locks.held(self._lock, shared=True):
            yield

    def has(self, entry: Entry) -> bool:
        """Whether a file is stored that the version before did not have."""
        path = self._path(entry)
        if not os.path.exists(path):
            return False
        self.unsure.append(path)
        return True

    def take(self, fd: int, stamp: Stamp, before: Entry | None = None) -> Entry:
        """Store what an open file holds, unless it is like `before`, which is stored and then given back.

        Raises:
            Changed: somebody writes to it.
        """
        if stamp.size <= _SMALL:
            return self.put(stamp.entry(""), _all_of(fd, stamp.size), before)
        entry = stamp.entry(_copy(fd, None, stamp.size))
        if before is not None and entry.is_like(before):
            return before
        if not self.has(entry):
            with self._new(entry) as target:
                if _copy(fd, target, entry.size) != entry.content:
                    raise Changed
        return entry

    def put(self, entry: Entry, data: bytes, before: Entry | None = None) -> Entry:
        """Store `data`, as `take` does; `entry` says its mode and time."""
        entry = entry._replace(size=len(data), content=hashlib.sha256(data).hexdigest())
        if before is not None and entry.is_like(before):
            return before
        if not self.has(entry):
            with self._new(entry) as target:
                write_all(target, data)
        return entry

    def link(self, entry: Entry, directory: int, name: str) -> None:
        """Put a stored file into a tree.

        Raises:
            FileNotFoundError: it is not stored.
        """
        try:
            self._link(entry, directory, name)
        except OSError as error:
            if error.errno == errno.EMLINK:
                self._renew(entry)
                self._link(entry, directory, name)
            elif error.errno in _NO_LINKS:
                self.copy(entry, directory, name)
            else:
                raise

    def _link(self, entry: Entry, directory: int, name: str) -> None:
        """Who stores the same content at the same moment puts his file in the place of ours. What was found under the
        name is linked no more then, and the kernel says that there is nothing; there is another one just like it."""
        path = self._path(entry)
        for last in (*(False,) * _TRIES, True):
            try:
                os.link(path, name, dst_dir_fd=directory)
            except FileNotFoundError:
                if last or not os.path.exists(path):
                    raise
            else:
                return

    def copy(self, entry: Entry, directory: int, name: str) -> None:
        """Put a copy of its own into a tree. Raises as `link` does."""
        source = os.open(self._path(entry), _READ)
        try:
            target = os.open(name, _NEW, 0o600, dir_fd=directory)
            try:
                _copy(source, target, entry.size)
                dress(target, entry)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def restore(self, entry: Entry, source: int) -> bool:
        """Store what an open file holds as `entry`, if it is just that."""
        try:
            with self._new(entry) as target:
                if _copy(source, target, entry.size) != entry.content:
                    raise Changed
        except Changed:
            return False
        return True

    def collect(self, entries: Iterable[Entry] | None = None) -> int:
        """Remove those that no tree holds, of some entries or of all; how many. None while somebody stores files."""
        with locks.held_at_once(self._lock) as alone:
            if not alone:
                return 0
            if entries is not None:
                return sum(_remove_unused(self._path(entry)) for entry in entries if entry.kind == "file")
            return self._collect_all()

    def collect_alone(self) -> int:
        """As `collect`, but wait until nobody stores files."""
        with locks.held(self._lock):
            return self._collect_all()

    def _collect_all(self) -> int:
        count = 0
        with contextlib.suppress(FileNotFoundError):
            for shard in os.listdir(self._place):
                for name in os.listdir(f"{self._place}/{shard}"):
                    count += _remove_unused(f"{self._place}/{shard}/{name}")
        return count

    def _path(self, entry: Entry) -> str:
        digest = entry.content
        return f"{self._place}/{digest[:2]}/{digest[2:]}.{entry.mode:o}.{entry.mtime:x}"

    def _renew(self, entry: Entry) -> None:
        """A file system allows so many links to a file: later ones lead to a new one."""
        source = os.open(self._path(entry), _READ)
        try:
            with self._new(entry) as target:
                _copy(source, target, entry.size)
        finally:
            os.close(source)

    @contextlib.contextmanager
    def _new(self, entry: Entry) -> Iterator[int]:
        """A file to write, which has its name when it is whole."""
        self._count += 1
        draft = f"{self._place}/new/{self._token}.{self._count}"
        target = os.open(draft, _NEW, 0o600)
        try:
            try:
                yield target
                dress(target, entry)
            finally:
                os.close(target)
            _rename(draft, self._path(entry))
        except BaseException:
            os.unlink(draft)
            raise
        self.written += entry.size
        self.unsure.append(self._path(entry))


def _rename(draft: str, path: str) -> None:
    try:
        os.rename(draft, path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.rename(draft, path)


def _remove_unused(path: str) -> bool:
    try:
        if os.lstat(path).st_nlink > 1:
            return False
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def dress(fd: int, entry: Entry) -> None:
    """Give a file or directory the mode and time that it has in a codebase."""
    os.fchmod(fd, entry.mode)
    with contextlib.suppress(OverflowError):
        os.utime(fd, ns=(entry.mtime, entry.mtime))


def _all_of(fd: int, size: int) -> bytes:
    data = os.read(fd, size + 1)
    while 0 < len(data) < size:
        more = os.read(fd, size + 1 - len(data))
        if not more:
            break
        data += more
    if len(data) != size:
        raise Changed
    return data


def _copy(source: int, target: int | None, size: int) -> str:
    """Read all of a file, and write it where a target is given, without its holes; gives the digest.

    Raises:
        Changed: it has another size.
    """
    digest = hashlib.sha256()
    at = 0
    while at <= size and (piece := os.pread(source, _PIECE, at)):
        digest.update(piece)
        at += len(piece)
        if target is None:
            continue
        if len(piece) == _PIECE and piece == _NOTHING:
            os.lseek(target, _PIECE, os.SEEK_CUR)
        else:
            write_all(target, piece)
    if at != size:
        raise Changed
    if target is not None:
        os.ftruncate(target, size)
    return digest.hexdigest()
