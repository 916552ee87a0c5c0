"""The private copy of a source that a job runs over: what was measured is what runs, whatever becomes of the source.

It lies in `$TMPDIR`, else /var/tmp, and not in the state directory, of which no sandbox may see a part. A link in the
directory of the job leads there, so that whoever comes after a process that was killed can remove it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..codebases.beneath import Descent, open_below
from ..codebases.manifest import Entries, Entry
from ..engine.removal import remove_tree
from ..errors import StoreError

_LINK = "copy"
_TREE = "tree"
_PREFIX = "atoll-copy-"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HINT = "TMPDIR says where copies are made; it needs as much room as the source takes."


@contextlib.contextmanager
def made(job_directory: str) -> Iterator[str]:
    """An empty directory for a copy, which is removed with all in it. Raises StoreError."""
    parent = os.path.realpath(os.environ.get("TMPDIR") or "/var/tmp")  # noqa: S108  # the name in it is nobody's guess
    place = os.path.join(parent, f"{_PREFIX}{os.urandom(8).hex()}")
    tree = os.path.join(place, _TREE)
    try:
        with _explained(place):
            os.symlink(place, os.path.join(job_directory, _LINK))
            os.mkdir(place, 0o700)
            os.mkdir(tree)
            # Always the same, as all else that a job can see.
            os.chmod(tree, 0o755)  # noqa: S103  # above it only we can pass
        yield tree
    finally:
        remove(job_directory)


def remove(job_directory: str) -> None:
    """The copy of a job, if it has one. Raises StoreError."""
    link = os.path.join(job_directory, _LINK)
    try:
        place = os.readlink(link)
    except FileNotFoundError:
        return
    if not os.path.basename(place).startswith(_PREFIX):
        raise StoreError(f"{link} leads to {place}, which is no copy that atoll made.", hint=f"Run: rm {link}")
    try:
        for name in os.listdir(place):
            remove_tree(os.path.join(place, name))
        os.rmdir(place)
    except FileNotFoundError:
        pass  # it was killed before it made one, or somebody else is at it as well
    except OSError as error:
        raise StoreError(f"The copy {place} cannot be removed: {error.strerror}.") from error
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)


class Copy:
    """A tree that is written into an empty directory: `lay_out`, each file, `finish`. All raise StoreError."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descent = Descent(self._root)

    def close(self) -> None:
        self._descent.__exit__()
        os.close(self._root)

    def lay_out(self, entries: Entries) -> None:
        """The directories and links, parents first."""
        with _explained(self._path):
            for path, entry in entries.items():
                directory, _, name = path.rpartition("/")
                fd = self._descent.open(directory)
                if entry.kind == "directory":
                    os.mkdir(name, 0o700, dir_fd=fd)
                else:
                    os.symlink(entry.content, name, dir_fd=fd)
                    with contextlib.suppress(OverflowError):
                        os.utime(name, ns=(entry.mtime, entry.mtime), dir_fd=fd, follow_symlinks=False)

    def write(self, path: str, mode: int, mtime: int, pieces: Iterator[bytes]) -> None:
        directory, _, name = path.rpartition("/")
        with _explained(self._path):
            fd = os.open(name, _NEW, 0o600, dir_fd=self._descent.open(directory))
        try:
            size = 0
            for piece in pieces:
                with _explained(self._path):
                    _put(fd, piece, size)
                size += len(piece)
            with _explained(self._path):
                os.ftruncate(fd, size)
                _dress(fd, mode, mtime)
        finally:
            os.close(fd)

    def finish(self, entries: Entries) -> None:
        """Directories last of all, children first: writing into one changes its time, and its mode may forbid it."""
        with _explained(self._path):
            for path, entry in reversed(entries.items()):
                if entry.kind == "directory":
                    self._dress_directory(path, entry)

    def _dress_directory(self, path: str, entry: Entry) -> None:
        fd = open_below(self._root, path)
        try:
            _dress(fd, entry.mode, entry.mtime)
        finally:
            os.close(fd)


def _put(fd: int, piece: bytes, offset: int) -> None:
    # Holes stay holes: a file may be far larger than the disk.
    if not piece.strip(b"\0"):
        return
    view = memoryview(piece)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _dress(fd: int, mode: int, mtime: int) -> None:
    os.fchmod(fd, mode)
    with contextlib.suppress(OverflowError):
        os.utime(fd, ns=(mtime, mtime))


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"The source cannot be copied to {path}: {error.strerror}.", hint=_HINT) from error
