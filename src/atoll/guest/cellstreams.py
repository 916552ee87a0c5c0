"""`sys.stdout` and `sys.stderr` of a context, whose order relative to each other is exact."""

from __future__ import annotations

import io
import sys
from typing import Any, Optional

from ..wire.frames import STDERR, STDOUT
from .ports import Port


class Streams:
    """What Python itself writes. It goes to `port`: that of the cell, and between two cells that of the guest."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.left: Optional[int] = None
        self.truncated = False
        self._stdout = io.TextIOWrapper(
            io.BufferedWriter(_Raw(self, STDOUT)), encoding="utf-8", errors="surrogateescape", line_buffering=True
        )
        stderr: Any = _Raw(self, STDERR, before=self._stdout)
        self._stderr = io.TextIOWrapper(stderr, encoding="utf-8", errors="backslashreplace", write_through=True)

    def install(self) -> None:
        sys.stdout = sys.__stdout__ = self._stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr  # type: ignore[misc]

    def begin(self, port: Port, limit: Optional[int]) -> None:
        """From now on output belongs to a cell, of which at most `limit` bytes are passed on."""
        self.port = port
        self.left = limit
        self.truncated = False

    def flush(self) -> None:
        """What the cell has printed goes out before its end is told."""
        if not self._stdout.closed:
            self._stdout.flush()

    def write(self, stream: int, data: memoryview) -> None:
        if self.left is not None:
            if len(data) > self.left:
                self.truncated = True
                data = data[: self.left]
            self.left -= len(data)
        if data:
            self.port.write(stream, data)


class _Raw(io.RawIOBase):
    """Sends what is written to it. `before` is flushed first, which keeps the order of the two streams."""

    def __init__(self, streams: Streams, stream: int, before: Optional[io.TextIOWrapper] = None) -> None:
        super().__init__()
        self._streams = streams
        self._stream = stream
        self._before = before

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream

    def isatty(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        if self._before is not None and not self._before.closed:
            self._before.flush()
        view = memoryview(data).cast("B")
        self._streams.write(self._stream, view)
        return len(view)
