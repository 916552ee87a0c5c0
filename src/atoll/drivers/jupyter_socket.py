"""WebSocket client of the Jupyter server driver: text, either way, on a socket that a process can hand to its child.

The package `websockets` knows the frames; its own clients need a thread or an event loop, which a fork would lose.
"""

from __future__ import annotations

import base64
import os
import socket

from websockets.frames import DATA_OPCODES, Frame
from websockets.protocol import CLIENT, OPEN, Protocol

from ..http.client import Lost, Refused, upgrade
from .jupyter_rest import Address

_SECONDS = 30.0
_MOST = 256 << 20
_RECEIVE = 1 << 18


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
        self._protocol = Protocol(CLIENT, max_size=_MOST)
        self._message = bytearray()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, text: str) -> None:
        """Raises OSError."""
        self._protocol.send_text(text.encode())
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._sock.sendall(data)

    def receive(self) -> list[str]:
        """The texts that have come, waited for if there are no bytes at all. Raises Closed, OSError."""
        data = self._sock.recv(_RECEIVE)
        # Servers send a message in two parts, and the second when the first is acknowledged: here, at once and not
        # after the usual 40 ms. The kernel forgets this with each packet.
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if not data:
            raise Closed("the server has hung up")
        self._protocol.receive_data(data)
        while pending := getattr(self._sock, "pending", int)():
            self._protocol.receive_data(self._sock.recv(pending))
        self._flush()  # pongs
        texts: list[str] = []
        for frame in self._protocol.events_received():
            if isinstance(frame, Frame) and frame.opcode in DATA_OPCODES:
                self._message += frame.data
                if frame.fin:
                    texts.append(self._message.decode("utf-8", "replace"))
                    self._message.clear()
        if not texts and self._protocol.state is not OPEN:
            raise Closed("the server has closed the web socket, or sends what makes no sense")
        return texts
