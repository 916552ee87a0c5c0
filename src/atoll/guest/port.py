"""A context's way to whoever serves its client: requests come by it, and answers go out."""

from __future__ import annotations

import _thread
from typing import Any, Dict, Optional, Union

from ..wire.frames import BULK, CALL, DATA, EVENT, STDIN, Frame

PACKET = 1 << 16
"""The most that one frame to or from a context holds."""

Bytes = Union[bytes, bytearray, memoryview]


class HungUp(ConnectionError):
    """The other side is gone."""


class Port:
    """One request after the other, each answered with an `end`."""

    telling = _thread.RLock()

    def put(self, kind: int, payload: Bytes, stream: int = 0) -> None:
        """Send a frame of at most `PACKET` bytes. Raises HungUp, as all that sends does."""
        raise NotImplementedError

    def frame(self) -> Optional[Frame]:
        """The next frame that came for this request; None when nobody is there any more."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all that processes of the cell have written is in its place before what is sent from now on."""
        raise NotImplementedError

    def write(self, stream: int, data: memoryview) -> None:
        """Output of the cell."""
        if len(data) <= PACKET:
            self.put(DATA, data, stream)
            return
        for start in range(0, len(data), PACKET):
            self.put(DATA, data[start : start + PACKET], stream)

    def send(self, data: Bytes) -> None:
        """Bytes that are no output."""
        view = memoryview(data).cast("B")
        if view:
            self.write(BULK, view)

    def tell(self, payload: bytes) -> None:
        """An event, of any size."""
        with self.telling:  # what several threads show must not be mixed
            if len(payload) > PACKET:
                self.send(payload)
                payload = b'{"bulk":%d}' % len(payload)
            self.put(EVENT, payload)

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
