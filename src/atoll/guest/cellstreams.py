"""`sys.stdout` and `sys.stderr` of a context, whose order relative to each other is exact."""

from __future__ import annotations

import io
import json
import socket
import sys
from typing import Any, Dict, Optional

from ..wire.frames import DATA, OPEN, STDERR, STDOUT, encode
from .packets import PACKET, Assembler, split


class Wire:
    """The context's end of the socket to its guest."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._assembler = Assembler()
        stdout = _Raw(self, STDOUT)
        self._stdout = io.TextIOWrapper(
            io.BufferedWriter(stdout), encoding="utf-8", errors="surrogateescape", line_buffering=True
        )
        stderr: Any = _Raw(self, STDERR, before=self._stdout)
        self._stderr = io.TextIOWrapper(stderr, encoding="utf-8", errors="backslashreplace", write_through=True)

    def install(self) -> None:
        sys.stdout = sys.__stdout__ = self._stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr  # type: ignore[misc]

    def write(self, stream: int, data: memoryview) -> None:
        for start in range(0, len(data), PACKET):
            self._sock.send(encode(0, DATA, data[start : start + PACKET], stream))

    def flush(self) -> None:
        """What the cell has printed goes out before its end is told."""
        if not self._stdout.closed:
            self._stdout.flush()

    def send(self, kind: int, payload: bytes) -> None:
        for packet in split(kind, payload):
            self._sock.send(packet)

    def receive(self) -> Optional[Dict[str, Any]]:
        """The next cell; None when the guest is gone."""
        while True:
            packet = self._sock.recv(2 * PACKET)
            if not packet:
                return None
            frame = self._assembler.add(packet, (OPEN,))
            if frame is not None:
                request: Dict[str, Any] = json.loads(frame.payload)
                return request


class _Raw(io.RawIOBase):
    """Sends what is written to it. `before` is flushed first, which keeps the order of the two streams."""

    def __init__(self, wire: Wire, stream: int, before: Optional[io.TextIOWrapper] = None) -> None:
        super().__init__()
        self._wire = wire
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
        self._wire.write(self._stream, view)
        return len(view)
