"""The guest's line to its keeper: orders that come by themselves, and answers to what the guest asks."""

from __future__ import annotations

import array
import json
import socket
from collections import deque
from time import monotonic
from typing import Any, Deque, Dict, List, NamedTuple, Tuple

MAX_MESSAGE = 1 << 17
NEW_CLIENT, ENVIRONMENT, ANSWER, DEATH = b"c", b"e", b"b", b"d"
HOLD, RELEASE, ADOPT = b"h", b"r", b"a"
_MOST_DESCRIPTORS = 4
_PATIENCE = 20.0
_INT = array.array("i").itemsize


class Order(NamedTuple):
    """What the keeper wants: a letter, what belongs to it, and descriptors. An empty letter is the keeper's end."""

    kind: bytes
    rest: bytes
    descriptors: List[int]


class KeeperLine:
    """Where packets are not kept apart, as from a fake keeper, an order is a single byte and nothing can be asked."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._size = MAX_MESSAGE if control.type == socket.SOCK_SEQPACKET else 1
        self._waiting: Deque[Order] = deque()

    def fileno(self) -> int:
        return self._control.fileno()

    def orders(self) -> List[Order]:
        """Those that have come; never waits."""
        try:
            self._waiting.append(self._receive(socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        found = list(self._waiting)
        self._waiting.clear()
        return found

    @property
    def has_orders(self) -> bool:
        """Whether some came while an answer was waited for."""
        return bool(self._waiting)

    def tell(self, message: Dict[str, Any]) -> None:
        """Raises: OSError: the keeper is gone."""
        self._control.send(json.dumps(message).encode("ascii"))

    def ask(self, question: Dict[str, Any]) -> Tuple[Dict[str, Any], List[int]]:
        """One question; the keeper always answers, and soon.

        Raises:
            OSError: it is gone, or does not.
        """
        self.tell(question)
        order = self.wait_for(ANSWER)
        return json.loads(order.rest), order.descriptors

    def wait_for(self, kind: bytes) -> Order:
        """The next order of a kind; others wait. Raises OSError as `ask` does."""
        end = monotonic() + _PATIENCE
        before = self._control.gettimeout()
        try:
            while True:
                self._control.settimeout(max(0.01, end - monotonic()))
                order = self._receive(0)
                if order.kind == kind:
                    return order
                self._waiting.append(order)
                if not order.kind:
                    raise ConnectionError("the keeper is gone")
        finally:
            self._control.settimeout(before)

    def _receive(self, flags: int) -> Order:
        descriptors = array.array("i")
        space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT)
        try:
            message, ancillary, _, _ = self._control.recvmsg(self._size, space, socket.MSG_CMSG_CLOEXEC | flags)
        except (BlockingIOError, socket.timeout):
            raise
        except OSError:
            message, ancillary = b"", []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % _INT])
        return Order(message[:1], message[1:], descriptors.tolist())
