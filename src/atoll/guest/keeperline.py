"""The guest's line to its keeper: orders that come by themselves. The guest says nothing on it."""

from __future__ import annotations

import array
import socket
from typing import List, NamedTuple

MAX_MESSAGE = 1 << 17
NEW_CLIENT, ENVIRONMENT = b"c", b"e"
_MOST_DESCRIPTORS = 4
_INT = array.array("i").itemsize


class Order(NamedTuple):
    """What the keeper wants: a letter, what belongs to it, and descriptors. An empty letter is the keeper's end."""

    kind: bytes
    rest: bytes
    descriptors: List[int]


class KeeperLine:
    """Where packets are not kept apart, as from a fake keeper, an order is a single byte."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._size = MAX_MESSAGE if control.type == socket.SOCK_SEQPACKET else 1

    def fileno(self) -> int:
        return self._control.fileno()

    def orders(self) -> List[Order]:
        """Those that have come; never waits."""
        try:
            return [self._receive()]
        except BlockingIOError:
            return []

    def _receive(self) -> Order:
        descriptors = array.array("i")
        space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT)
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        try:
            message, ancillary, _, _ = self._control.recvmsg(self._size, space, flags)
        except BlockingIOError:
            raise
        except OSError:
            message, ancillary = b"", []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % _INT])
        return Order(message[:1], message[1:], descriptors.tolist())
