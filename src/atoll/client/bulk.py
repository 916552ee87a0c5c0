"""Bytes by the hundred megabytes from a lane: each is copied once on its way from the socket to where it stays."""

from __future__ import annotations

from ..errors import ProtocolError
from ..wire.frames import BULK, DATA, HEADER, MAX_PAYLOAD, Decoder, Frame

_HEAD = HEADER.size


class BulkTaker:
    """Cuts a stream into frames, as a `Decoder` does, but keeps what comes as bulk aside in `taken`.

    Args:
        channel: the only one that may send any.
        limit: how many bytes may come.
    """

    def __init__(self, channel: int, limit: int) -> None:
        self.taken = bytearray()
        self._channel = channel
        self._limit = limit
        self._left = 0
        self._head = b""
        self._others = Decoder()

    def feed(self, data: bytes) -> list[Frame]:
        """The other frames that `data` completes.

        Raises:
            BadFrame: a header announces what no honest peer sends.
            ProtocolError: more comes than may.
        """
        if self._others.pending:
            return self._others.feed(data)  # an end that is longer than one read; no bulk follows it
        view = memoryview(self._head + data if self._head else data)
        self._head = b""
        at = self._take(view, 0)
        while len(view) - at >= _HEAD:
            length, channel, kind, stream = HEADER.unpack_from(view, at)
            if kind != DATA or stream != BULK or channel != self._channel or not 0 < length <= MAX_PAYLOAD:
                return self._others.feed(bytes(view[at:]))
            if len(self.taken) + length > self._limit:
                raise ProtocolError(f"The guest sent more than {self._limit} bytes.")
            self._left = length
            at = self._take(view, at + _HEAD)
        self._head = bytes(view[at:])
        return []

    def _take(self, view: memoryview, at: int) -> int:
        """Keep what belongs to the frame that has begun; gives where the next one begins."""
        end = min(at + self._left, len(view))
        self.taken += view[at:end]
        self._left -= end - at
        return end
