"""Copies of this machine's files below another root, with the shared libraries that they need."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable

from ...errors import WallUnavailable

_ELF = b"\x7fELF"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_AT_ONCE = 200
# The same again under other names, with and without leap seconds.
_TWICE = ("/usr/share/zoneinfo/right", "/usr/share/zoneinfo/posix")

Skip = Callable[[str], bool]


def merged(path: str) -> str:
    """Where a system path is in a tree whose /bin, /lib and so on are links into /usr."""
    first = path.lstrip("/").partition("/")[0]
    return f"/usr{path}" if first in _MERGED else path


class Copier:
    """Fills one directory. Equal files, by inode, become one; no file keeps a set-id bit.

    Attributes:
        programs: what was copied that the loader has to do with, as it is called on this machine.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.programs: set[str] = set()
        self._copies: dict[tuple[int, int], str] = {}

    def file(self, source: str, target: str) -> None:
        """Copy what a path leads to, unless it is there already. What others may not read is left out.

        Raises:
            OSError: it is not there, or the disk is full.
        """
        path = self.root + target
        found = os.stat(source)
        if os.path.lexists(path):
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        key = (found.st_dev, found.st_ino)
        if key in self._copies:
            os.link(self._copies[key], path)
            return
        shutil.copyfile(source, path)
        os.chmod(path, 0o755 if found.st_mode & stat.S_IXUSR else 0o644)
        os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
        self._copies[key] = path
        if _is_elf(path):
            self.programs.add(os.path.realpath(source))

    def public(self, source: str, target: str) -> None:
        """Copy a file or a directory of the system, if it is there. What not everybody may read is left out."""
        try:
            found = os.lstat(source)
        except OSError:
            return
        if stat.S_ISDIR(found.st_mode):
            self.directory(source, target, lambda path: path in _TWICE or not os.stat(path).st_mode & stat.S_IROTH)
        elif stat.S_IMODE(os.stat(source).st_mode) & stat.S_IROTH:
            self.file(source, target)

    def directory(self, source: str, target: str, skip: Skip) -> None:
        """Copy a tree. A link that leads on inside it stays one; any other becomes what it leads to."""
        os.makedirs(self.root + target, exist_ok=True)
        with os.scandir(source) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with contextlib.suppress(FileNotFoundError):  # a link to nowhere
                    self._entry(entry, f"{target}/{entry.name}", skip)

    def _entry(self, entry: os.DirEntry[str], target: str, skip: Skip) -> None:
        if skip(entry.path):
            return
        if entry.is_symlink() and "/" not in os.readlink(entry.path):
            if not os.path.lexists(self.root + target):
                os.symlink(os.readlink(entry.path), self.root + target)
        elif entry.is_dir(follow_symlinks=False):
            self.directory(entry.path, target, skip)
        elif entry.is_file():
            self.file(entry.path, target)

    def libraries(self, more: Iterable[str] = ()) -> None:
        """Copy what the programs copied so far need, and the loader; `more` are names to open at run time.

        All libraries go to the directory of the C library, which every loader searches by itself.

        Raises:
            WallUnavailable: this machine has no `ldd`.
        """
        needed = _needed(sorted(self.programs))
        standard = next((path for path in needed if os.path.basename(path).startswith("libc.")), "/usr/lib/libc.so")
        place = os.path.dirname(os.path.realpath(standard))
        for path in needed:
            name = os.path.basename(path)
            is_loader = name.startswith("ld-")
            self.file(path, merged(path) if is_loader else f"{merged(place)}/{name}")
        for name in more:
            with contextlib.suppress(FileNotFoundError):
                self.file(f"{place}/{name}", f"{merged(place)}/{name}")


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == _ELF


def _needed(programs: list[str]) -> list[str]:
    """The shared libraries of some programs, and the loader, as paths of this machine."""
    found: set[str] = set()
    for start in range(0, len(programs), _AT_ONCE):
        command = ["ldd", *programs[start : start + _AT_ONCE]]
        try:
            # Its exit code only says that one of them is static.
            told = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
            )
        except FileNotFoundError:
            raise WallUnavailable(
                "This machine has no `ldd`, so a root file system cannot be made from it.",
                hint="Install it (`apt-get install libc-bin`), or give an image.",
            ) from None
        for line in told.stdout.splitlines():
            if not line.startswith(("\t", " ")):
                continue  # the name of a program
            path = line.partition("=>")[2].strip() or line.strip()
            path = path.partition(" (")[0]
            if path.startswith("/"):
                found.add(path)
    return sorted(found)
