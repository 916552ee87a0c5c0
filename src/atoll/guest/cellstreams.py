"""`sys.stdout` and `sys.stderr` of a context, whose order relative to each other is exact."""

from __future__ import annotations

import _thread
import io
import os
import select
import sys
from time import monotonic
from typing import Any, Iterable, Optional

from ..wire.frames import STDERR, STDOUT
from .port import Port

_WINDOW = 0.002
_AT_ONCE = 16
_LINE = 4096
"""What is longer may go into a pipe in pieces."""


class Streams:
    """What Python itself writes. It goes to `port`, with the cell that runs or, between two cells, with the next.

    Each write is sent at once, up to `_AT_ONCE` of them within `_WINDOW` seconds. Who prints faster than that
    writes to the same pipe as processes do, from which the guest takes many lines at a time.
    Threads may print at any time: `lock` makes sure that none does so for a cell that has ended.

    Args:
        taps: the guest's ends of the pipes that processes of a cell write to.
        pipe: where they write to on stdout, whatever becomes of descriptor 1.
    """

    def __init__(self, port: Port, taps: Iterable[int] = (), pipe: int = -1) -> None:
        self.left: Optional[int] = None
        self.truncated = False
        self.lock = _thread.RLock()
        self._port = port
        self._taps = tuple(taps)
        self._poll: Any = None
        if self._taps:
            self._poll = select.poll()
            for fd in self._taps:
                self._poll.register(fd, select.POLLIN)
        self._pipe = pipe
        self.in_haste = False
        self._window = 0.0
        self._sent = 0
        # No buffer of bytes between: an interrupted one keeps what it could not send, and sends it in a later cell.
        self.holds = False
        stdout: Any = _Raw(self, STDOUT)
        self._stdout = io.TextIOWrapper(stdout, encoding="utf-8", errors="surrogateescape", line_buffering=True)
        self._stderr = _Stderr(self, self._stdout)

    def install(self) -> None:
        sys.stdout = sys.__stdout__ = self._stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr  # type: ignore[misc]

    def begin(self, limit: Optional[int]) -> None:
        """From now on output belongs to another cell, of which at most `limit` bytes are passed on."""
        with self.lock:
            self.left = limit
            self.truncated = False
            self.in_haste = False

    def flush(self) -> None:
        """What the cell and its processes have written goes out before anything else is told."""
        self.flush_own()
        with self.lock:
            self._settle()

    def flush_own(self) -> None:
        """What Python itself has written goes out. At the end of a cell that is enough: the guest sees to the rest."""
        self.flush_held()
        if not self._stdout.closed:
            self._stdout.flush()

    def flush_held(self) -> None:
        """A piece of a line on stderr goes out."""
        if self.holds and not self._stderr.closed:
            self._stderr.flush()

    def renew(self) -> None:
        """In a forked child: who held the lock is its parent's thread, and the guest's answers are its parent's."""
        self.lock = _thread.RLock()
        self._poll = None
        self._pipe = -1
        self.in_haste = False

    def write(self, stream: int, data: memoryview) -> None:
        size = len(data)
        if self.left is not None:
            if size > self.left:
                self.truncated = True
                data = data[: self.left]
                size = len(data)
            self.left -= size
        if not size:
            return
        if stream == STDOUT and size <= _LINE and self._pipe >= 0 and self._hurries() and self._pipes(data):
            self.in_haste = True
            return
        self._settle()  # what was written before comes before
        self._port.write(stream, data)

    def _hurries(self) -> bool:
        """Whether there have been many writes just now."""
        if self.in_haste:
            return True
        now = monotonic()
        if now - self._window > _WINDOW:
            self._window = now
            self._sent = 0
        self._sent += 1
        return self._sent > _AT_ONCE

    def add(self, data: memoryview, size: int) -> bool:
        """Write a line after others, if that is all there is to do."""
        left = self.left
        if size > _LINE or (left is not None and left < size) or not self._pipes(data):
            return False
        if left is not None:
            self.left = left - size
        return True

    def _pipes(self, data: memoryview) -> bool:
        """All of it or nothing, as it is so short. It waits for the guest, unless code has asked for the opposite."""
        try:
            os.write(self._pipe, data)
        except OSError:
            return False
        return True

    def _settle(self) -> None:
        """Wait for the guest to take what is in the pipes. Errors and hang-ups are no output: a cell may close them."""
        if self._poll is not None and any(mask & select.POLLIN for _, mask in self._poll.poll(0)):
            self._port.settle()
        self.in_haste = False


class _Raw(io.RawIOBase):
    """Sends what is written to it."""

    def __init__(self, streams: Streams, stream: int) -> None:
        super().__init__()
        self._streams = streams
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream

    def isatty(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        streams = self._streams
        size = len(data)
        if self._stream == STDERR:
            streams.holds = False
        elif streams.holds:
            streams.flush_held()  # before the lock is taken, and it was written before
        with streams.lock:
            # The short way for whoever prints very many lines.
            if not (streams.in_haste and self._stream == STDOUT and size and streams.add(data, size)):
                streams.write(self._stream, memoryview(data).cast("B"))
        return size


class _Stderr(io.TextIOWrapper):
    """By the line, so that a `print` is one piece; what waits for the rest of its line is older than what waits on
    stdout."""

    def __init__(self, streams: Streams, stdout: io.TextIOWrapper) -> None:
        raw: Any = _Raw(streams, STDERR)
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self._streams = streams
        self._stdout = stdout

    def write(self, text: str) -> int:
        if not self._stdout.closed:
            self._stdout.flush()
        self._streams.holds = True
        return super().write(text)
