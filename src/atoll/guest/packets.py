"""Frames between the guest and its context processes, over a socket that keeps packets whole.

Each packet is one frame, so that an interrupted or concurrent writer can never tear one. What does not
fit into a packet travels in several, all but the last marked with `MORE` in the stream field.
"""

from __future__ import annotations

import socket
from typing import Iterator, Optional, Tuple

from ..wire.frames import HEADER, MAX_PAYLOAD, BadFrame, Frame, encode

PACKET = 1 << 16
MORE = 1
LANE, SETTLE, SETTLED, READY, GO, SKIP, WATCH, DECLINED = range(20, 28)
"""Kinds of packets beside those of the protocol. LANE brings the descriptor of a lane and its number; a context
asks with SETTLE for all output of its processes to be on its way, and hears SETTLED; it announces a cell that
had to wait with READY, and hears GO or SKIP. WATCH says that output lies in the shared page, DECLINED that a lane
could not be taken."""

_LIMIT = 2 * MAX_PAYLOAD


def pair() -> Tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def split(kind: int, payload: bytes) -> Iterator[bytes]:
    """The packets of one message."""
    for start in range(0, len(payload) - PACKET, PACKET):
        yield encode(0, kind, payload[start : start + PACKET], MORE)
    rest = len(payload) % PACKET or min(len(payload), PACKET)
    yield encode(0, kind, payload[len(payload) - rest :])


class Assembler:
    """Puts messages together again."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def add(self, packet: bytes, messages: Tuple[int, ...]) -> Optional[Frame]:
        """The frame that a packet completes; kinds outside `messages` are never split.

        Raises:
            BadFrame: it is none, or too long.
        """
        if len(packet) < HEADER.size:
            raise BadFrame("a packet without a header")
        length, _, kind, stream = HEADER.unpack_from(packet)
        payload = packet[HEADER.size :]
        if length != len(payload):
            raise BadFrame("a packet of the wrong length")
        if kind not in messages:
            return Frame(0, kind, stream, payload)
        self._parts += payload
        if len(self._parts) > _LIMIT:
            raise BadFrame("a message that is too long")
        if stream == MORE:
            return None
        whole = bytes(self._parts)
        self._parts.clear()
        return Frame(0, kind, 0, whole)
