"""What the files of a directory were like when they were last read, so that only those that changed are read again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from typing import Any

from ..home import private
from .walking import Stamp

_FORMAT = 1
_KEPT = 64
# A file may change twice within one tick of the clock that stamps it, and look as before.
_TICK = 100_000_000


class Remembered:
    """The digests of the files of one directory of the host, by their stamps.

    It is a memory and no truth: where it cannot be read or written, files are read once more.
    """

    def __init__(self, home: str, source: str) -> None:
        self._directory = f"{home}/remembered"
        name = hashlib.sha256(os.fsencode(source)).hexdigest()[:32]
        self._path = f"{self._directory}/{name}.json"
        self._source = source
        self._old = self._load()
        self._new: dict[str, list[Any]] = {}

    def digest(self, path: str, stamp: Stamp) -> str | None:
        """What a file holds that looked like this when it was read."""
        row = self._old.get(path)
        if row is None or row[:-1] != [*stamp]:
            return None
        self._new[path] = row
        digest: str = row[-1]
        return digest

    def note(self, path: str, stamp: Stamp, digest: str, read_at: int) -> None:
        """A file was read at that time, in nanoseconds. One that had just been written may be written again unseen."""
        if max(stamp.mtime, stamp.ctime) < read_at - _TICK:
            self._new[path] = [*stamp, digest]

    def save(self) -> None:
        """Keep what was seen since this was made, and nothing else."""
        if self._new == self._old:
            return
        draft = f"{self._path}.{os.urandom(8).hex()}"
        with contextlib.suppress(OSError):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            with open(draft, "w", encoding="ascii", opener=private) as file:
                value = {"format": _FORMAT, "source": self._source, "files": self._new}
                file.write(json.dumps(value, separators=(",", ":")))
            os.replace(draft, self._path)
            self._forget_oldest()

    def _load(self) -> dict[str, list[Any]]:
        try:
            with open(self._path, "rb") as file:
                value = json.loads(file.read())
            if value["format"] != _FORMAT or value["source"] != self._source:
                return {}
            files: dict[str, list[Any]] = value["files"]
        except (OSError, ValueError, TypeError, KeyError):
            return {}
        return files

    def _forget_oldest(self) -> None:
        with os.scandir(self._directory) as names:
            files = sorted(names, key=lambda each: each.stat().st_mtime, reverse=True)
        for each in files[_KEPT:]:
            os.unlink(each.path)


def now() -> int:
    """The clock that stamps are compared with."""
    return time.time_ns()
