"""A line that counts files while something takes long: on a terminal only, and gone afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Self

from .output import STDERR, write

_EVERY = 0.1


class Counting:
    """A `with` block; give `callback` to whoever counts. It is None where nobody looks."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._next = 0.0
        self._shown = False
        self.callback: Callable[[int, int], None] | None = self._count if os.isatty(STDERR) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shown:
            write(STDERR, b"\r\x1b[K")

    def _count(self, count: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._shown = True
            write(STDERR, f"\r{count} of {total} files {self._done}\x1b[K".encode())
