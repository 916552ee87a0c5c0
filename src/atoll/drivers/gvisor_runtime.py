"""The `runsc` of this machine: where it is, how old, and what it can do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import NamedTuple

from ..errors import WallUnavailable

FIX = "apt-get install runsc"
_NEWER = "Install a newer one: https://gvisor.dev/docs/user_guide/install/"
PLATFORM = "ATOLL_GVISOR_PLATFORM"
_OWN = "ATOLL_RUNSC"
_PLACES = ("/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin", "/bin")
# The best first. kvm is for bare metal: in a virtual machine it is slow, or hangs. ptrace is slow and works anywhere.
_PLATFORMS = ("systrap", "kvm", "ptrace")
OLDEST = 20221219
# Since then it takes what `ls` and `stat` of coreutils 9 ask for.
_NO_AUTOMOUNT = 20230320
_PATIENCE = 30


class Runtime(NamedTuple):
    """A `runsc`.

    Args:
        date: that of its version, 0 where the version tells none.
        reaches_files: whether its kernel would work on files of the host itself, rather than to ask its gofer.
    """

    path: str
    version: str
    date: int
    platforms: tuple[str, ...]
    reaches_files: bool

    @property
    def needs_busybox(self) -> bool:
        """Whether GNU's `ls` and `stat` fail in it."""
        return 0 < self.date < _NO_AUTOMOUNT

    def platform(self) -> str:
        """How it is to intercept system calls: as the user says, else the best that works here.

        Raises:
            WallUnavailable: the user wants one that it has not.
        """
        wanted = os.environ.get(PLATFORM)
        if wanted:
            if wanted not in self.platforms:
                raise WallUnavailable(
                    f"{PLATFORM} is {wanted!r}, and {self.path} has {', '.join(self.platforms)}.",
                    hint=f"Set {PLATFORM} to one of these, or unset it.",
                )
            return wanted
        return next(name for name in _PLATFORMS if name in self.platforms and (name != "kvm" or _has_kvm()))


def find() -> Runtime:
    """The one to use.

    Raises:
        WallUnavailable: there is none, it is too old, or it does not start; the hint says what to do.
    """
    path = _path()
    if path is None:
        own = os.environ.get(_OWN)
        what = f"{_OWN} names {own!r}, which cannot be run" if own else "There is no `runsc` on this machine"
        raise WallUnavailable(f"{what}: the gvisor driver needs it.", hint=f"Run: {FIX}")
    version = _version(path)
    date = _date(version)
    if 0 < date < OLDEST:
        raise WallUnavailable(f"{path} is gVisor {version}, which is too old: {OLDEST} is needed.", hint=_NEWER)
    return Runtime(path, version, date, _platforms(path), "-directfs" in _ask(path, "flags").split())


def cached(home: str) -> Runtime:
    """The same, asked once for each binary and remembered in the state directory.

    Raises:
        WallUnavailable: as `find` does.
    """
    path = _path()
    if path is None:
        return find()
    found = os.stat(path)
    note = f"{home}/gvisor/runsc-{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}.json"
    try:
        with open(note, encoding="utf-8") as file:
            told = json.load(file)
            return Runtime(path, told["version"], told["date"], tuple(told["platforms"]), bool(told["reaches_files"]))
    except (OSError, ValueError, KeyError, TypeError):
        runtime = find()
    os.makedirs(os.path.dirname(note), mode=0o700, exist_ok=True)
    draft = f"{note}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(runtime._asdict(), file)
    os.rename(draft, note)
    return runtime


def _path() -> str | None:
    own = os.environ.get(_OWN)
    if own:
        return own if os.path.isabs(own) and os.access(own, os.X_OK) else None
    return next((p for p in (f"{place}/runsc" for place in _PLACES) if os.access(p, os.X_OK)), None)


def _version(path: str) -> str:
    found = re.search(r"version\s+(\S+)", _ask(path, "--version"))
    return found.group(1) if found else "unknown"


def _date(version: str) -> int:
    found = re.search(r"20\d{6}", version)
    return int(found.group()) if found else 0


def _platforms(path: str) -> tuple[str, ...]:
    told = _ask(path, "help", "platforms").split()
    return tuple(name for name in _PLATFORMS if name in told) or ("ptrace",)


def _ask(path: str, *arguments: str) -> str:
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WallUnavailable(f"{path} cannot be run: {error}.", hint=f"Run: {FIX}") from error
    if done.returncode != 0:
        raise WallUnavailable(f"{path} does not work: {done.stderr.strip()[:500]}", hint=f"Run: {FIX}")
    return done.stdout or done.stderr  # its flags are told on the latter


def _has_kvm() -> bool:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return not any(line.startswith("flags") and "hypervisor" in line.split() for line in file)
