"""Writing down how a source was when a sandbox began to see it, so that a review can tell what has changed since."""

from __future__ import annotations

import contextlib
import os
import signal

from . import errands
from .places import Rules

_BASE = ("base", "base.applied", "base.codebase.applied")


class Recorder:
    """A child of its keeper's that does it in the background, if there is a source at all."""

    def __init__(self, box: str, source: str | None) -> None:
        self._box = box
        self._source = source
        self._child = 0

    def begin(self, rules: Rules | None, since: float) -> None:
        """Unless it was done before, for a sandbox that was stopped."""
        if self._source:
            self._child = errands.record_source(self._box, self._source, rules, since)

    def begin_anew(self, rules: Rules | None, since: float) -> None:
        """The sandbox sees the source as it is now."""
        if self.is_busy():
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0
        for name in _BASE:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._box}/{name}")
        self.begin(rules, since)

    def is_busy(self) -> bool:
        """Whether it is still being written down."""
        if self._child:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._child, os.WNOHANG) == (0, 0):
                    return True
            self._child = 0
        return False
