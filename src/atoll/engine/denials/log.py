"""The file in a sandbox's box that has what the kernel denied: bounded, and readable for whoever owns the box.

A line is a JSON list: the number of a denial, its time, path, operation and process. Numbers count also those that
are not there, so that everybody can tell how many these are; a line of a number alone is for such at the end.
"""

from __future__ import annotations

import contextlib
import json
import os

from ...types import Denial

MOST = 10_000
_MOST_BYTES = 4 << 20
_NAME = "denials"


class Log:
    """The writing half. When a file is full it takes the place of an older one."""

    def __init__(self, box: str) -> None:
        self._path = f"{box}/{_NAME}"
        self._number = max((number for number, *_ in _lines(box)), default=0)
        self._lines = sum(1 for _ in _read(self._path))
        self._size = 0
        self._before = ""
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            text = file.read()
            self._size = len(text)
            # Whoever wrote was killed in the midst of a line.
            self._before = "" if text.endswith(b"\n") or not text else "\n"

    def add(self, denials: list[Denial], lost: int) -> None:
        """Write some more, after which `lost` others came. Raises OSError."""
        rows: list[list[object]] = []
        for each in denials:
            self._number += 1
            rows.append([self._number, each.time, each.path, each.operation, each.process])
        if lost:
            self._number += lost
            rows.append([self._number])
        text = self._before + "".join(f"{json.dumps(row)}\n" for row in rows)
        self._before = ""
        if self._lines and (self._lines + len(rows) > MOST or self._size + len(text) > _MOST_BYTES):
            os.replace(self._path, f"{self._path}.old")
            self._lines = self._size = 0
        with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
        self._lines += len(rows)
        self._size += len(text)


def read(box: str) -> tuple[list[Denial], int]:
    """The newest, oldest first, and how many more there were. Raises OSError."""
    lines = _lines(box)
    if not lines:
        return [], 0
    last = lines[-1][0]
    whole = [line for line in lines if len(line) == 5][-MOST:]
    return [Denial(line[1], line[2], line[3], "kernel", line[4]) for line in whole], last - len(whole)


def _lines(box: str) -> list[list]:  # type: ignore[type-arg]  # of what we have written ourselves
    path = f"{box}/{_NAME}"
    return [*_read(f"{path}.old"), *_read(path)]


def _read(path: str) -> list[list]:  # type: ignore[type-arg]
    """All whole lines: a writer may have been killed in the midst of the last."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found
