"""The one way from a path of the API to a file: `openat2` below the root, so that the kernel decides.

Where the kernel has none, `stepping` does the same by small steps. No path is ever compared as text. Links are followed
inside the root; the magic ones of /proc are not.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import List, Optional, Tuple

from .arguments import encoded
from .beneath import BENEATH, IN_ROOT, NO_MAGICLINKS, NO_SYMLINKS, move, openat2
from .refusal import INVALID_PATH, Refused, file_refusal
from .stepping import open_by_steps

_MAX_LINKS = 40
_MAX_PATH = 4096

# Whether this kernel turned out to have no openat2.
_by_steps: List[bool] = []


class Root:
    """The directory that every path of the API is inside of.

    All methods raise `Refused`: invalid_path for a path that no file can have, an errno for the rest.
    """

    def __init__(self, root: str, workdir: str, inside: str = "") -> None:
        """`inside` is how code of the sandbox calls the root, if it does not see what is above it."""
        self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._inside = inside or root
        self._workdir = posixpath.join("/", workdir)

    def absolute(self, path: str) -> str:
        """How an answer names it. Only for people to read: links are not looked at."""
        return posixpath.normpath(posixpath.join(self._workdir, path)).replace("//", "/")

    def real(self, path: str) -> str:
        """How a process of the sandbox names it."""
        return posixpath.join(self._inside, posixpath.join(self._workdir, path).lstrip("/"))

    def open(self, path: str, flags: int, mode: int = 0, follow: bool = True) -> int:
        """A descriptor of what is there. It is the caller's to close."""
        return self._open(path, flags if follow else flags | os.O_NOFOLLOW, mode)

    def parent(self, path: str) -> Tuple[int, bytes]:
        """The directory that holds a name, as a descriptor, and the name."""
        joined = posixpath.join(self._workdir, self._checked(path)).rstrip("/")
        directory, name = posixpath.split(joined)
        if name in ("", ".", ".."):
            raise Refused(INVALID_PATH, "%r does not name a file." % path[:200])
        encoded_name = encoded(name, "A path")
        return self._open(directory or "/", os.O_PATH | os.O_DIRECTORY, 0, called=path), encoded_name

    def parent_of_target(self, path: str) -> Tuple[int, bytes]:
        """As `parent`, for where a link at the end of the path leads, whether something is there or not."""
        for _ in range(_MAX_LINKS):
            fd, name = self.parent(path)
            target = _read_link(fd, name)
            if target is None:
                return fd, name
            os.close(fd)
            directory = posixpath.dirname(posixpath.join(self._workdir, path).rstrip("/"))
            path = posixpath.join(directory, target)
        raise file_refusal(errno.ELOOP, self.absolute(path))

    def stat(self, path: str, follow: bool = True) -> os.stat_result:
        fd = self.open(path, os.O_PATH, follow=follow)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def make_directories(self, path: str, mode: int = 0o777) -> None:
        """Make a directory and those above it, as far as they are missing."""
        missing = []
        current = posixpath.join(self._workdir, self._checked(path)).rstrip("/") or "/"
        while not self._is_directory(current):
            missing.append(current)
            current = posixpath.dirname(current)
        for wanted in reversed(missing):
            self._make_directory(wanted, mode if wanted == missing[0] else 0o777)

    def _is_directory(self, path: str) -> bool:
        try:
            os.close(self._open(path, os.O_PATH | os.O_DIRECTORY, 0))
        except Refused as refusal:
            if refusal.number == errno.ENOENT:
                return False
            raise
        return True

    def _make_directory(self, path: str, mode: int) -> None:
        fd, name = self.parent(path)
        try:
            os.mkdir(name, mode, dir_fd=fd)
        except FileExistsError:
            if not self._is_directory(path):
                raise file_refusal(errno.EEXIST, self.absolute(path)) from None
        except OSError as error:
            raise file_refusal(error.errno or errno.EIO, self.absolute(path)) from error
        finally:
            os.close(fd)

    def _open(self, path: str, flags: int, mode: int, called: Optional[str] = None) -> int:
        """`called` is how an error names it, if not by this path."""
        joined = posixpath.join(self._workdir, self._checked(path))
        try:
            return open_below(self._fd, encoded(joined, "A path"), flags, mode, IN_ROOT)
        except OSError as error:
            raise file_refusal(error.errno or errno.EIO, self.absolute(called or path)) from error

    def _checked(self, path: str) -> str:
        if not path:
            raise Refused(INVALID_PATH, "A path must not be empty.")
        if "\0" in path:
            raise Refused(INVALID_PATH, "A path must not hold a NUL byte.")
        if len(path) >= _MAX_PATH:
            raise Refused(INVALID_PATH, "A path must be shorter than %d bytes." % _MAX_PATH)
        return path


def as_bytes(path: str) -> bytes:
    """A path that has been checked, as the kernel takes it."""
    return path.encode("utf-8", "surrogateescape")


def open_beneath(directory: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open what lies strictly below a directory, through no link at all. Raises OSError."""
    return open_below(directory, path, flags, mode, BENEATH | NO_SYMLINKS)


def open_below(directory: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    """openat2, or the same by steps. Raises OSError."""
    if _by_steps:
        return _open_by_steps(directory, path, flags, mode, resolve)
    try:
        return openat2(directory, path, flags, mode, resolve | NO_MAGICLINKS)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    _by_steps.append(True)
    return _open_by_steps(directory, path, flags, mode, resolve)


def _open_by_steps(directory: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    links = not resolve & NO_SYMLINKS
    return open_by_steps(directory, path, flags, mode, in_root=bool(resolve & IN_ROOT), links=links)


def rename(source: int, name: bytes, target: int, new_name: bytes, overwrite: bool) -> None:
    """Rename between two directories; without `overwrite` only to a name that is free. Raises OSError."""
    if overwrite:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    else:
        move(source, name, target, new_name)


def lstat(directory: int, name: bytes) -> Optional[os.stat_result]:
    """None when nothing is there. Raises OSError."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _read_link(directory: int, name: bytes) -> Optional[str]:
    """Where a link leads; None for what is no link."""
    found = lstat(directory, name)
    if found is None or not stat.S_ISLNK(found.st_mode):
        return None
    return os.readlink(name, dir_fd=directory).decode("utf-8", "surrogateescape")
