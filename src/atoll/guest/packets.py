"""Frames between the guest and its context processes, over a socket that keeps packets whole.

Each packet is one frame, so that an interrupted or concurrent writer can never tear one. What does not
fit into a packet travels in several, all but the last marked with `MORE` in the stream field. The channel of
a frame is the number of the request that it belongs to.
"""

from __future__ import annotations

import socket
from typing import Iterator, Optional, Tuple

from ..wire.frames import HEADER, MAX_PAYLOAD, BadFrame, Frame, encode
from .port import PACKET

RECEIVED = PACKET + HEADER.size
MORE = 1
SETTLE = 20
"""A kind of packet beside those of the protocol: a context asks for all output of its processes to be on its way. It
hears that on a pipe, as the number that it sent, of `NUMBER` bytes."""
NUMBER = 4

_LIMIT = 2 * MAX_PAYLOAD


def pair() -> Tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def split(kind: int, payload: bytes, number: int = 0) -> Iterator[bytes]:
    """The packets of one message."""
    for start in range(0, len(payload) - PACKET, PACKET):
        yield encode(number, kind, payload[start : start + PACKET], MORE)
    rest = len(payload) % PACKET or min(len(payload), PACKET)
    yield encode(number, kind, payload[len(payload) - rest :])


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
        length, number, kind, stream = HEADER.unpack_from(packet)
        payload = packet[HEADER.size :]
        if length != len(payload):
            raise BadFrame("a packet of the wrong length")
        if kind not in messages:
            return Frame(number, kind, stream, payload)
        if stream != MORE and not self._parts:
            return Frame(number, kind, 0, payload)
        self._parts += payload
        if len(self._parts) > _LIMIT:
            raise BadFrame("a message that is too long")
        if stream == MORE:
            return None
        whole = bytes(self._parts)
        self._parts.clear()
        return Frame(number, kind, 0, whole)
