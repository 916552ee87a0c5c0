"""A client's end of a web socket, as far as a Jupyter server needs one: text, either way, of any size."""

from __future__ import annotations

import base64
import os
import socket
import struct

from .jupyter_rest import Address

_SECONDS = 30.0
_MOST_HEADERS = 1 << 16
_MOST = 256 << 20
_RECEIVE = 1 << 18
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


class Closed(Exception):
    """The other side has hung up, or said something that makes no sense."""


class WebSocket:
    """Connects when it is made. Raises Closed, OSError."""

    def __init__(self, address: Address, path: str) -> None:
        raw = socket.create_connection((address.host, address.port), timeout=_SECONDS)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.scheme == "https":
            import ssl

            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=address.host)
        self._sock = raw
        self._buffer = bytearray()
        self._message = bytearray()
        try:
            self._shake_hands(address, path)
        except BaseException:
            raw.close()
            raise
        raw.settimeout(None)

    def _shake_hands(self, address: Address, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {address.base}/{path} HTTP/1.1",
            f"Host: {address.host}:{address.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in address.headers.items()),
        ]
        self._sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        while b"\r\n\r\n" not in self._buffer:
            data = self._sock.recv(_RECEIVE)
            if not data or len(self._buffer) > _MOST_HEADERS:
                raise Closed("the server does not shake hands")
            self._buffer += data
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        status = head.partition(b"\r\n")[0].decode("latin-1")
        if status.split(" ")[1:2] != ["101"]:
            raise Closed(f"the server refuses the web socket ({status})")
        self._buffer = bytearray(rest)

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
