"""A client's end of a web socket, as far as a Jupyter server needs one: text, either way, of any size."""

from __future__ import annotations

import base64
import os
import socket
import struct

from ..http.client import Lost, Refused, upgrade
from .jupyter_rest import Address

_SECONDS = 30.0
_MOST = 256 << 20
_RECEIVE = 1 << 18
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


class Closed(Exception):
    """The other side has hung up, or said something that makes no sense."""


class WebSocket:
    """Connects when it is made. Raises Closed."""

    def __init__(self, address: Address, path: str) -> None:
        headers = {
            **address.headers,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        try:
            self._sock = upgrade(address.server, "GET", f"{address.base}/{path}", headers, within=_SECONDS)
        except Refused as error:
            raise Closed(f"the server refuses the web socket ({error})") from None
        except Lost as error:
            raise Closed(f"the server does not shake hands: {error}") from None
        self._buffer = bytearray()
        self._message = bytearray()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, text: str) -> None:
        """Raises OSError."""
        self._put(_TEXT, text.encode())

    def _put(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack(">BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 0x80 | 127, size)
        mask = os.urandom(4)
        self._sock.sendall(head + mask + _masked(payload, mask))

    def receive(self) -> list[str]:
        """The texts that have come, waited for if there are no bytes at all. Raises Closed, OSError."""
        data = self._sock.recv(_RECEIVE)
        # Servers send a message in two parts, and the second when the first is acknowledged: here, at once and not
        # after the usual 40 ms. The kernel forgets this with each packet.
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if not data:
            raise Closed("the server has hung up")
        self._buffer += data
        while pending := getattr(self._sock, "pending", int)():
            self._buffer += self._sock.recv(pending)
        texts: list[str] = []
        while (frame := self._frame()) is not None:
            self._take(frame[0], frame[1], frame[2], texts)
        return texts

    def _take(self, kind: int, payload: bytes, final: bool, texts: list[str]) -> None:
        if kind == _CLOSE:
            raise Closed("the server has closed the web socket")
        if kind == _PING:
            self._put(_PONG, payload)
        if kind > _BINARY:
            return
        self._message += payload
        if len(self._message) > _MOST:
            raise Closed("the server sends a message without end")
        if final:
            texts.append(self._message.decode("utf-8", "replace"))
            self._message.clear()

    def _frame(self) -> tuple[int, bytes, bool] | None:
        """The next whole frame."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size == 126:
            size, start = int.from_bytes(buffer[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(buffer[2:10], "big"), 10
        if size > _MOST or buffer[1] & 0x80:
            raise Closed("the server sends a frame that makes no sense")
        if len(buffer) < start + size:
            return None
        frame = buffer[0] & 0x0F, bytes(buffer[start : start + size]), bool(buffer[0] & 0x80)
        del buffer[: start + size]
        return frame


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
