"""The lock that lets one apply at a time work on a source, and the journal that survives its death."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from typing import Any, Literal, NamedTuple, Self

from ..errors import Busy, StoreError

Phase = Literal["staging", "commit", "undo", "done"]
Action = Literal["put", "swap", "drop", "mode"]

_VERSION = 1
_PATIENCE = 30.0
_PAUSE = 0.02


class Identity(NamedTuple):
    """What tells one file from another that took its name. Of a directory only the number counts."""

    inode: int
    format: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Identity:
        if stat.S_ISDIR(found.st_mode):
            return cls(found.st_ino, stat.S_IFDIR, 0, 0)
        return cls(found.st_ino, stat.S_IFMT(found.st_mode), found.st_size, found.st_mtime_ns)


class Step(NamedTuple):
    """One thing to do in the source, and enough to undo it.

    Attributes:
        action: "put" moves `staged` to a free name, "swap" exchanges it with what is there, "drop" moves what is there
            to `staged`, "mode" changes permission bits.
        staged: the name in the staging directory.
        new: what is staged; None for "drop".
        old: what is there before; None for "put".
        modes: permission bits before and after.
        digest: of the new content, if it has one.
    """

    action: Action
    path: str
    staged: str
    new: Identity | None
    old: Identity | None
    modes: tuple[int, int] = (0, 0)
    digest: str | None = None


class Journal(NamedTuple):
    """What an apply is about to do. `source` is the device and number of the source's directory."""

    phase: Phase
    source: tuple[int, int]
    staging: str
    base: str | None
    steps: tuple[Step, ...] = ()


class Ledger:
    """The lock and the journal of one source. `with` holds the lock.

    Raises:
        Busy: another apply works on the source, for longer than anybody waits.
        StoreError: the state directory cannot be used.
    """

    def __init__(self, source: str, state: str) -> None:
        key = hashlib.sha256(os.fsencode(source)).hexdigest()[:32]
        self._source = source
        self._state = state
        self._path = os.path.join(state, f"apply-{key}")
        self._lock = -1

    def is_open(self) -> bool:
        """Whether an apply is under way, or was killed."""
        return os.path.lexists(f"{self._path}.journal")

    def __enter__(self) -> Self:
        try:
            os.makedirs(self._state, mode=0o700, exist_ok=True)
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"The state directory {self._state} cannot be used: {error.strerror}.") from error
        try:
            self._wait()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._lock)

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Busy(f"Another apply works on {self._source}.", hint="Try again when it is done.") from None
                time.sleep(_PAUSE)

    def read(self) -> Journal | None:
        """Raises StoreError for a journal that nobody can understand."""
        try:
            with open(f"{self._path}.journal", encoding="ascii") as file:
                return _decoded(json.load(file))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise StoreError(
                f"The journal {self._path}.journal of an apply that was interrupted makes no sense: {error}.",
                hint=f"Look at {self._source} and what is staged there, then remove the journal.",
            ) from None

    def write(self, journal: Journal) -> None:
        """Replace the journal; it is on the disk when the call returns. Raises OSError."""
        text = json.dumps([_VERSION, *journal], separators=(",", ":"))
        fd = os.open(f"{self._path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.rename(f"{self._path}.new", f"{self._path}.journal")
        self._sync()

    def remove(self) -> None:
        """Raises OSError."""
        os.unlink(f"{self._path}.journal")
        self._sync()

    def _sync(self) -> None:
        fd = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _decoded(value: list[Any]) -> Journal:
    version, phase, source, staging, base, steps = value
    if version != _VERSION:
        raise ValueError(f"it has version {version}")
    return Journal(phase, (source[0], source[1]), staging, base, tuple(map(_step, steps)))


def _step(value: list[Any]) -> Step:
    action, path, staged, new, old, modes, digest = value
    return Step(action, path, staged, new and Identity(*new), old and Identity(*old), (modes[0], modes[1]), digest)
