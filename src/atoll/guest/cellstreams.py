"""`sys.stdout` and `sys.stderr` of a context, whose order relative to each other is exact."""

from __future__ import annotations

import _thread
import io
import select
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Iterable, Optional

from ..wire.frames import STDERR, STDOUT
from .port import Port
from .shared import RING, Shared

if TYPE_CHECKING:
    from .ports import GuestPort

_WINDOW = 0.002
_AT_ONCE = 16
_LINE = 1 << 15


class Streams:
    """What Python itself writes. It goes to `port`: that of the cell, and between two cells that of the guest.

    Each write is sent at once, up to `_AT_ONCE` of them within `_WINDOW` seconds. Who prints faster than that
    leaves lines in the page that is shared with the guest, which sends them on in large pieces and soon.
    Threads may print at any time: `lock` makes sure that none does so for a cell that has ended.

    Args:
        taps: the guest's ends of the pipes that processes of a cell write to.
    """

    def __init__(self, guest: GuestPort, shared: Shared, taps: Iterable[int] = ()) -> None:
        self.port: Port = guest
        self.left: Optional[int] = None
        self.truncated = False
        self.lock = _thread.RLock()
        self._guest = guest
        self._shared = shared
        self._taps = select.poll()
        for fd in taps:
            self._taps.register(fd, select.POLLIN)
        self._may_leave = True
        self._used = 0
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

    def begin(self, port: Port, limit: Optional[int]) -> None:
        """From now on output belongs to a cell, of which at most `limit` bytes are passed on."""
        with self.lock:
            if self._used:
                self._drain()  # a thread of the cell before has just printed it
            self.port = port
            self.left = limit
            self.truncated = False

    def flush(self) -> None:
        """What the cell and its processes have written goes out before anything else is told."""
        self.flush_own()
        with self.lock:
            if self.port.lane and self._relays():
                self._drain()

    def flush_own(self) -> None:
        """What Python itself has written goes out."""
        self.flush_held()
        if not self._stdout.closed:
            self._stdout.flush()
        if self._used:
            with self.lock:
                self._drain()

    def flush_held(self) -> None:
        """A piece of a line on stderr goes out."""
        if self.holds and not self._stderr.closed:
            self._stderr.flush()

    def relays(self) -> bool:
        """Whether processes of the cell have written something that the client may not have yet."""
        with self.lock:
            return self._relays()

    def _relays(self) -> bool:
        """The same, for who has the lock: one thread at a time may look."""
        # Errors and hang-ups are no output: a cell may close its pipes.
        return self._shared.relaying or any(mask & select.POLLIN for _, mask in self._taps.poll(0))

    def renew(self) -> None:
        """In a forked child: who held the lock is its parent's thread, and the page is its parent's."""
        self.lock = _thread.RLock()
        self._may_leave = False
        self.in_haste = False
        self._used = 0

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
        if stream == STDOUT and size < _LINE and self.port.lane and self._may_leave and self._hurries():
            self._leave(data, size)
            return
        if self._used or (self.port.lane and self._may_leave and self._relays()):
            self._drain()  # what was written before comes before
        self.port.write(stream, data)

    def _hurries(self) -> bool:
        """Whether there have been many writes just now."""
        if self._used:
            return True
        now = monotonic()
        if now - self._window > _WINDOW:
            self._window = now
            self._sent = 0
        self._sent += 1
        return self._sent > _AT_ONCE

    def _leave(self, data: memoryview, size: int) -> None:
        if self._used + size > RING:
            self._drain()
        self._shared.leave(data, self._used)
        if not self._used:
            self._guest.announce()
        self._used += size
        self.in_haste = True

    def add(self, data: memoryview, size: int) -> bool:
        """Leave a line after others, if that is all there is to do."""
        used = self._used
        left = self.left
        if size > _LINE or used + size > RING or (left is not None and left < size):
            return False
        if left is not None:
            self.left = left - size
        self._shared.leave(data, used)
        self._used = used + size
        return True

    def _drain(self) -> None:
        """Wait until the guest has sent on what was left for it."""
        try:
            self._guest.settle()
        finally:
            self._used = 0
            self.in_haste = False
            self._shared.used = 0


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
            if not (streams.in_haste and self._stream == STDOUT and streams.add(data, size)):
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
