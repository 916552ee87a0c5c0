"""What a bridge to a Jupyter kernel says to the guest, and hears from it. A part of the text of `programjupyter.py`."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections import deque
from typing import Any, Deque, Dict, Optional

DATA, EVENT, END = 3, 5, 8
STDOUT, STDERR, BULK = 1, 2, 3
PACKET, MORE, SMALL = 1 << 16, 1, 1 << 15
ANSWERS, TEXT, REQUESTS = 3, 4, 5
MOST_UNSENT = 32 << 20


class Unsupported(Exception):
    """Something is missing; the text says how to get it."""


class KernelDied(Exception):
    """It is gone, and its variables."""


class Answers:
    """The way back to the guest. Nothing waits here: a kernel cannot be held up, so what nobody takes piles up, and
    output beyond a limit is cut."""

    def __init__(self) -> None:
        self._sock = socket.socket(fileno=ANSWERS)
        self._sock.setblocking(False)
        os.set_inheritable(ANSWERS, False)
        self._unsent: Deque[bytes] = deque()
        self._size = 0
        self.cut = False

    def fileno(self) -> int:
        return ANSWERS

    @property
    def waiting(self) -> bool:
        return bool(self._unsent)

    def pump(self) -> None:
        """Send what can be sent. Raises OSError when the guest is gone."""
        while self._unsent:
            try:
                self._sock.send(self._unsent[0])
            except BlockingIOError:
                return
            self._size -= len(self._unsent.popleft())

    def finish(self) -> None:
        """Send all, however long it takes."""
        self._sock.setblocking(True)
        try:
            self.pump()
        except OSError:
            pass  # nobody wants it

    def _put(self, kind: int, payload: bytes, stream: int = 0) -> None:
        packet = struct.pack("<IIBB", len(payload), 0, kind, stream) + payload
        self._unsent.append(packet)
        self._size += len(packet)

    def say(self, kind: int, value: Dict[str, Any]) -> None:
        payload = json.dumps(value, separators=(",", ":")).encode("ascii")
        start = 0
        while len(payload) - start > PACKET:
            self._put(kind, payload[start : start + PACKET], MORE)
            start += PACKET
        self._put(kind, payload[start:])
        self.pump()

    def tell(self, value: Dict[str, Any]) -> None:
        """An event, of any size."""
        payload = json.dumps(value, separators=(",", ":")).encode("ascii")
        if len(payload) > SMALL:
            self.data(BULK, payload)
            payload = b'{"bulk":%d}' % len(payload)
        self._put(EVENT, payload)
        self.pump()

    def data(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), SMALL):
            self._put(DATA, data[start : start + SMALL], stream)
        self.pump()

    def output(self, stream: int, text: str) -> None:
        if self._size > MOST_UNSENT:
            self.cut = True
        else:
            self.data(stream, text.encode("utf-8", "surrogateescape"))


class Requests:
    """What the guest says: each a length (u32) and JSON. `{"bytes": n}` is followed by so many, as `"data"`."""

    def __init__(self) -> None:
        os.set_inheritable(REQUESTS, False)
        self._buffer = bytearray()
        self._waiting: Deque[Dict[str, Any]] = deque()
        self.ended = False

    def read(self) -> None:
        """Take what has come; waits if there is nothing."""
        data = os.read(REQUESTS, PACKET)
        self.ended = not data
        self._buffer += data
        while True:
            message = self._parsed()
            if message is None:
                return
            self._waiting.append(message)

    def _parsed(self) -> Optional[Dict[str, Any]]:
        buffer = self._buffer
        end = 4 + struct.unpack("<I", buffer[:4])[0] if len(buffer) >= 4 else 0
        if not end or len(buffer) < end:
            return None
        message: Dict[str, Any] = json.loads(bytes(buffer[4:end]))
        size = message.get("bytes", 0)
        if len(buffer) < end + size:
            return None
        if size:
            message["data"] = bytes(buffer[end : end + size])
        del buffer[: end + size]
        return message

    def await_go(self) -> bool:
        """Wait until the guest says so; what else it says is for later. False when it is gone."""
        while not any("go" in message for message in self._waiting):
            if self.ended:
                return False
            self.read()
        return True

    def next(self) -> Optional[Dict[str, Any]]:
        """One, waited for; None when the guest is gone."""
        while not self._waiting:
            if self.ended:
                return None
            self.read()
        return self._waiting.popleft()

    def pop(self, kind: str) -> Optional[Dict[str, Any]]:
        """One that has come, and has such a member."""
        for at, message in enumerate(self._waiting):
            if kind in message:
                del self._waiting[at]
                return message
        return None
