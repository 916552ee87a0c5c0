"""Lanes, seen from the guest: clients' streams that a context has been given, and that the guest watches over.

The context reads requests from a lane and answers them by itself. The guest sees when the client hangs up,
adds what processes of the cell write, and ends the stream when the context dies.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import Callable, Deque, Dict, List, Optional

from ..wire.frames import DATA, encode
from .loop import OUT, Callback, Loop
from .port import ATOMIC, SMALL

MAX_LANES = 64

_RDHUP = 0x2000
_BUFFER = 1 << 20
"""As much as the kernel allows: the more fits, the less often either side has to be woken up."""


_probed: List[bool] = []


def can_be_watched() -> bool:
    """Whether this kernel tells of a client that hangs up while nobody reads; gVisor does not. Asked once."""
    if not _probed:
        ours, theirs = socket.socketpair()
        with ours, select.epoll() as poll:
            poll.register(ours.fileno(), _RDHUP)
            theirs.close()
            _probed.append(bool(poll.poll(0)))
    return _probed[0]


class Lane:
    """One of them. `gone` is called when the client hangs up, `drained` when there is room again."""

    def __init__(
        self, loop: Loop, sock: socket.socket, number: int, gone: Callable[[Lane], None], drained: Callback
    ) -> None:
        self.number = number
        self._loop = loop
        self._sock = sock
        self._gone = gone
        self._drained = drained
        self._frames: Deque[bytes] = deque()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        loop.watch(sock.fileno(), _RDHUP, self._ready)

    @property
    def empty(self) -> bool:
        return not self._frames

    @property
    def room(self) -> int:
        return 0 if self._frames else ATOMIC

    def put(self, channel: int, stream: int, data: bytes) -> None:
        """Output of processes, for the request with that number."""
        for at in range(0, len(data), SMALL):
            self._frames.append(encode(channel, DATA, data[at : at + SMALL], stream))
        self._write()

    def close(self) -> None:
        """End the stream, whoever else holds a copy of it."""
        self._loop.forget(self._sock.fileno())
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client was faster
        self._sock.close()
        self._frames.clear()

    def _ready(self, mask: int) -> None:
        if mask & ~OUT:
            self._gone(self)
        else:
            self._write()
            if not self._frames:
                self._drained()

    def _write(self) -> None:
        while self._frames:
            try:
                self._sock.send(self._frames[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                self._frames.clear()  # nobody is there; that is told by its own event
                break
            self._frames.popleft()
        self._loop.watch(self._sock.fileno(), _RDHUP | OUT if self._frames else _RDHUP, self._ready)


class Lanes:
    """Those of one context's process."""

    def __init__(self, loop: Loop, gone: Callable[[Lane], None], drained: Callback) -> None:
        self._loop = loop
        self._gone = gone
        self._drained = drained
        self._lanes: Dict[int, Lane] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def empty(self) -> bool:
        """Whether all that was put into them is on its way."""
        return all(lane.empty for lane in self._lanes.values())

    def get(self, number: int) -> Optional[Lane]:
        return self._lanes.get(number)

    def add(self, sock: socket.socket) -> Lane:
        self._made += 1
        lane = self._lanes[self._made] = Lane(self._loop, sock, self._made, self._left, self._drained)
        return lane

    def upcoming(self) -> int:
        """The number that the next one gets."""
        return self._made + 1

    def end(self, number: int) -> None:
        """End one that the context could not take."""
        lane = self._lanes.pop(number, None)
        if lane is not None:
            lane.close()

    def close(self) -> None:
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close()

    def _left(self, lane: Lane) -> None:
        self._lanes.pop(lane.number, None)
        lane.close()
        self._gone(lane)
