"""Writing a version to a directory of the host: never through a link, each file in one step, nothing removed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from ..errors import FilePresent
from ..guest.descriptors import write_all
from ..policy.paths import host_path
from ..policy.text import short
from ..types import Transfer
from .beneath import DIRECTORY, Descent, open_below
from .blobs import dress
from .intake import Progress, refusal
from .manifest import Entries, Entry

_PIECE = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def land(
    tree: str, entries: Entries, path: str | os.PathLike[str], *, overwrite: bool, progress: Progress | None = None
) -> Transfer:
    """Write what is in `tree` to `path`, which is made when it is missing.

    Raises:
        FilePresent: there is something in it, and `overwrite` is False.
        FileError: a link or another kind of file is in the way, or the disk refuses.
    """
    name = host_path(path, "path")
    try:
        os.makedirs(name, exist_ok=True)
        target = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise refusal(error, name) from error
    try:
        if not overwrite and os.listdir(target):
            raise FilePresent(
                f"{short(name)} is not empty; overwrite=True writes into it.", errno=errno.EEXIST, path=name
            )
        return _Landing(tree, target, name, progress).write(entries)
    finally:
        os.close(target)


class _Landing:
    def __init__(self, tree: str, target: int, name: str, progress: Progress | None) -> None:
        self._tree = tree
        self._target = target
        self._name = name
        self._progress = progress
        self._secret = f".atoll-{os.urandom(8).hex()}"
        self._made: list[str] = []

    def write(self, entries: Entries) -> Transfer:
        counts = dict.fromkeys(("file", "directory", "symlink", "size"), 0)
        by_directory: dict[str, list[str]] = {"": []}
        for path, entry in entries.items():
            by_directory.setdefault(path.rpartition("/")[0], []).append(path)
            counts[entry.kind] += 1
            counts["size"] += entry.size
        source = os.open(self._tree, DIRECTORY)
        try:
            self._fill(source, by_directory, entries, counts["file"])
        finally:
            os.close(source)
        for path in reversed(self._made):
            with self._naming(path):
                _dress_directory(self._target, path, entries[path])
        return Transfer(counts["file"], counts["directory"], counts["symlink"], counts["size"])

    def _fill(self, source: int, by_directory: dict[str, list[str]], entries: Entries, total: int) -> None:
        done = 0
        with Descent(source) as stored, Descent(self._target) as written:
            for directory, paths in by_directory.items():
                with self._naming(directory):
                    there, here = stored.open(directory), written.open(directory)
                for path in paths:
                    with self._naming(path):
                        self._put(there, here, path, entries[path])
                    if entries[path].kind == "file":
                        done += 1
                        if self._progress is not None:
                            self._progress(done, total)

    def _put(self, there: int, here: int, path: str, entry: Entry) -> None:
        name = path.rpartition("/")[2]
        if entry.kind == "directory":
            self._make_directory(here, name, path)
            return
        try:
            if entry.kind == "file":
                _copy(there, name, here, self._secret, entry)
            else:
                os.symlink(entry.content, self._secret, dir_fd=here)
                with contextlib.suppress(OverflowError):
                    os.utime(self._secret, ns=(entry.mtime, entry.mtime), dir_fd=here, follow_symlinks=False)
            os.rename(self._secret, name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._secret, dir_fd=here)
            raise

    def _make_directory(self, here: int, name: str, path: str) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=here)
        except FileExistsError:
            # It must be a directory, and not a link to one.
            os.close(os.open(name, DIRECTORY, dir_fd=here))
        else:
            self._made.append(path)

    @contextlib.contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refusal(error, f"{self._name}/{path}") from error


def _copy(there: int, name: str, here: int, new: str, entry: Entry) -> None:
    source = os.open(name, _READ, dir_fd=there)
    try:
        target = os.open(new, _NEW, 0o600, dir_fd=here)
        try:
            while piece := os.read(source, _PIECE):
                write_all(target, piece)
            dress(target, entry)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _dress_directory(root: int, path: str, entry: Entry) -> None:
    """Last of all: writing into a directory changes its time, and its mode may forbid it."""
    fd = open_below(root, path)
    try:
        dress(fd, entry)
    finally:
        os.close(fd)
