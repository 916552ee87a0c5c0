"""One question of a steward to its guest, as a client asks it. The answer is hostile, and may not come."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from ...wire import frames
from ...wire.frames import END, HELLO, OPEN, VERSION, BadFrame, Decoder

_CHUNK = 1 << 16
_MOST = 1 << 20


def ask(control: socket.socket, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What the guest answers within a time; nothing where it does not."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, contextlib.suppress(OSError):
            socket.send_fds(control, [b"c"], [theirs.fileno()])
        try:
            ours.settimeout(seconds)
            hello = frames.encode_json(0, HELLO, {"version": VERSION})
            ours.sendall(hello + frames.encode_json(1, OPEN, request))
            return _answer(ours, seconds)
        except (OSError, BadFrame):
            return {}


def _answer(sock: socket.socket, seconds: float) -> dict[str, Any]:
    decoder, heard, until = Decoder(), 0, time.monotonic() + seconds
    while heard < _MOST and time.monotonic() < until:
        sock.settimeout(max(0.001, until - time.monotonic()))
        data = sock.recv(_CHUNK)
        if not data:
            break
        heard += len(data)
        for frame in decoder.feed(data):
            if frame.channel == 1 and frame.kind == END:
                answer = frame.json().get("ok")
                return answer if isinstance(answer, dict) else {}
    return {}
