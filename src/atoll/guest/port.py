"""One way to a context, whatever it is made of: its requests come by it, and its answers go out."""

from __future__ import annotations

import _thread
from typing import Any, Dict, Optional, Union

from ..wire.frames import BULK, CALL, DATA, EVENT, HEADER, STDIN, Frame

ATOMIC = 1 << 15
SMALL = ATOMIC - HEADER.size

Bytes = Union[bytes, bytearray, memoryview]


class HungUp(ConnectionError):
    """The other side is gone."""


class Port:
    """One way to a context. Each request on it is answered with an `end`."""

    lane = 0
    channel = 0
    telling = _thread.RLock()

    def put(self, kind: int, payload: Bytes, stream: int = 0) -> None:
        """Send a frame of at most `SMALL` bytes. Raises HungUp, as all that sends does."""
        raise NotImplementedError

    def end(self, payload: bytes) -> None:
        raise NotImplementedError

    def frame(self) -> Optional[Frame]:
        """The next frame that came for this request; None when nobody is there any more."""
        raise NotImplementedError

    def write(self, stream: int, data: memoryview) -> None:
        """Output of the cell."""
        if len(data) <= SMALL:
            self.put(DATA, data, stream)
            return
        for start in range(0, len(data), SMALL):
            self.put(DATA, data[start : start + SMALL], stream)

    def send(self, data: Bytes) -> None:
        """Bytes that are no output."""
        view = memoryview(data).cast("B")
        if view:
            self.write(BULK, view)

    def tell(self, payload: bytes) -> None:
        """An event, of any size."""
        with self.telling:  # what several threads show must not be mixed
            if len(payload) > SMALL:
                self.send(payload)
                payload = b'{"bulk":%d}' % len(payload)
            self.put(EVENT, payload)

    def conclude(self, payload: bytes) -> None:
        """An event that is followed by the end at once."""
        self.tell(payload)

    def call(self) -> Optional[Dict[str, Any]]:
        """What the client says to a running request; None when nobody is there any more."""
        while True:
            frame = self.frame()
            if frame is None:
                return None
            if frame.kind == CALL:
                return frame.json()

    def receive(self, size: int) -> bytearray:
        """So many bytes that come with the request.

        Raises:
            HungUp: they never came.
        """
        received = bytearray()
        while len(received) < size:
            frame = self.frame()
            if frame is None:
                raise HungUp
            if frame.kind == DATA and frame.stream == STDIN:
                received += frame.payload
        return received
