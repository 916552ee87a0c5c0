"""How the source of a sandbox was when it began to see it, written down in the background: see `review`."""

from __future__ import annotations

import contextlib
import os
import signal

from ..places import Rules

BASE = "base"
RECORDS = (BASE, "base.applied", "base.codebase.applied")
"""What is written, all in one directory."""


class Recorder:
    """Of one sandbox. `place` is the directory where it is written."""

    def __init__(self, place: str, source: str) -> None:
        self.base = f"{place}/{BASE}"
        self._place = place
        self._source = source
        self._pid = 0

    def record(self, since: float, rules: Rules | None, *, anew: bool = False) -> None:
        """Begin to write it down, unless that was done."""
        if anew:
            self.end()
            for name in RECORDS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._place}/{name}")
        if os.path.exists(self.base):
            return
        self._pid = os.fork()
        if self._pid == 0:
            try:
                from ... import review

                os.nice(15)
                os.closerange(3, 1 << 16)
                matcher, ignores = (rules.matcher(), rules.ignores()) if rules else (None, None)
                review.record_base(self._source, self.base, matcher, ignores, int(since * 1e9))
            finally:
                os._exit(0)

    def end(self) -> None:
        """Stop writing it down."""
        if self.is_busy():
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._pid = 0

    def is_busy(self) -> bool:
        """Whether it is being written down."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG) != (0, 0):
            self._pid = 0
        return bool(self._pid)
