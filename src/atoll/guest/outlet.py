"""Where output goes: to a channel as its credit allows, and with no channel into a bounded ring."""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Optional, Tuple

from ..wire.frames import BULK, WINDOW
from .channel import Channel

RING = 1 << 20

_EVENT = -1


class Outlet:
    """The output of one command or cell, in order.

    Args:
        limit: how many bytes of output are passed on at most; what exceeds it is dropped and `truncated`.
    """

    def __init__(self, channel: Optional[Channel], limit: Optional[int] = None) -> None:
        self.truncated = False
        self.channel = channel
        self._left = limit
        self._queue: Deque[Tuple[int, bytes]] = deque()
        self._size = 0
        self._spills = False
        self._wanted = True

    @property
    def empty(self) -> bool:
        return not self._queue

    @property
    def size(self) -> int:
        """Bytes that nobody has taken yet."""
        return self._size

    @property
    def room(self) -> int:
        """How much may be put in now. It is exceeded by whoever must: what cannot be sent is kept."""
        if self.channel is None or self._spills:
            return WINDOW
        return 0 if self._queue else self.channel.room

    def attach(self, channel: Channel) -> None:
        self.channel = channel
        self._spills = False
        self.pump()

    def detach(self) -> None:
        """From now on output is kept in the ring."""
        self.channel = None
        self._trim()

    def spill(self) -> None:
        """Hold up nobody any more: what the client does not take goes through the ring."""
        self._spills = True

    def take_over(self, earlier: Outlet) -> None:
        """Begin with what another one has kept."""
        self.truncated = self.truncated or earlier.truncated
        for stream, data in earlier._queue:
            self.put(stream, data)
        earlier.drop()
        earlier.truncated = False

    def taken(self) -> List[Tuple[int, bytes]]:
        """All that nobody has taken, which is the caller's now."""
        kept = list(self._queue)
        self._queue.clear()
        self._size = 0
        return kept

    def drop(self) -> None:
        """Forget what nobody has taken."""
        self.truncated = self.truncated or bool(self._queue)
        self._queue.clear()
        self._size = 0

    def discard(self) -> None:
        """Nobody wants it, now or later."""
        self.drop()
        self.channel = None
        self._wanted = False

    def put(self, stream: int, data: bytes) -> None:
        if self._left is not None:
            if len(data) > self._left:
                self.truncated = True
                data = data[: self._left]
            self._left -= len(data)
        if data:
            self._add(stream, data)

    def put_bulk(self, data: bytes) -> None:
        """Bytes that are no output, in their place between it; they do not count as output."""
        self._add(BULK, data)

    def put_event(self, payload: bytes) -> None:
        """An EVENT in its place between the output; it does not count as output."""
        self._add(_EVENT, payload)

    def _add(self, stream: int, data: bytes) -> None:
        if not self._wanted:
            return
        self._queue.append((stream, data))
        self._size += len(data)
        self.pump()
        self._trim()

    def pump(self) -> None:
        """Send what the channel has room for."""
        channel = self.channel
        while channel is not None and self._queue:
            stream, data = self._queue[0]
            room = channel.room
            if stream == _EVENT and room < len(data):
                return
            if room <= 0:
                return
            self._queue.popleft()
            if len(data) > room:
                self._queue.appendleft((stream, data[room:]))
                data = data[:room]
            self._size -= len(data)
            if stream == _EVENT:
                channel.send_event(data)
            else:
                channel.send_data(stream, data)

    def _trim(self) -> None:
        while self._size > RING and len(self._queue) > 1:
            self._size -= len(self._queue.popleft()[1])
            self.truncated = True
