"""A context's packets from and to its guest: requests come in, output, events and answers go out."""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Any, Deque, Dict, Optional, Tuple

from ..wire.frames import CALL, DATA, END, HEADER, OPEN, Frame
from . import packets
from .packets import RECEIVED, SETTLE
from .port import Bytes, HungUp, Port

_COPIED = 1 << 12
"""What is longer is sent from where it lies."""


class GuestPort(Port):
    """
    Args:
        settled: a pipe on which the guest says that it has settled. It is no packet, since the thread that waits for
            it need not be the one that waits for packets.
    """

    def __init__(self, sock: socket.socket, settled: int = -1) -> None:
        self._sock = sock
        self._settled = settled
        self._settles = 0
        self._number = 0
        self._assembler = packets.Assembler()
        self._early: Deque[Frame] = deque()

    def request(self) -> Optional[Dict[str, Any]]:
        """The next request; None when the guest is gone, which is the end of the context."""
        frame = self._early.popleft() if self._early else self._next((OPEN,))
        if frame is None:
            return None
        self._number = frame.channel
        return frame.json()

    def put(self, kind: int, payload: Bytes, stream: int = 0) -> None:
        header = HEADER.pack(len(payload), self._number, kind, stream)
        try:
            if len(payload) > _COPIED:
                self._sock.sendmsg((header, payload))
            else:
                self._sock.send(header + payload)
        except OSError as error:
            raise HungUp from error

    def end(self, payload: bytes) -> None:
        """Answer the request."""
        try:
            for packet in packets.split(END, payload, self._number):
                self._sock.send(packet)
        except OSError as error:
            raise HungUp from error

    def frame(self) -> Optional[Frame]:
        return self._next((CALL, DATA))

    def settle(self) -> None:
        """One thread at a time may."""
        self._settles += 1
        number = self._settles.to_bytes(packets.NUMBER, "little")
        self.put(SETTLE, number)
        # An interrupt may have left the answer to an earlier one behind.
        while (said := os.read(self._settled, packets.NUMBER)) != number:
            if not said:
                raise HungUp

    def _next(self, wanted: Tuple[int, ...]) -> Optional[Frame]:
        while True:
            packet = self._sock.recv(RECEIVED)
            if not packet:
                return None
            frame = self._assembler.add(packet, (OPEN, CALL))
            if frame is None:
                continue
            if frame.kind in wanted:
                return frame
            if frame.kind == OPEN:  # the cell that runs has forged its own end
                self._early.append(frame)
