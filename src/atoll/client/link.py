"""One stream to a guest: the handshake, the frames, and what an honest guest may send.

A link carries one operation at a time. Whatever breaks an operation closes its link, which makes the
guest end what ran; so nothing here has to be put back in order.
"""

from __future__ import annotations

import os
from typing import Protocol

from ..driver import GuestStream
from ..errors import ProtocolError, from_wire
from ..io import IO
from ..wire import frames
from ..wire.frames import END, HELLO, OPEN, VERSION, Decoder, Frame


class Broken(Exception):
    """The stream is of no more use. Never leaves atoll: `Links` finds out why and says so."""


class Ended(Broken):
    """The guest is no longer at the other end."""


class Silent(Broken):
    """Nothing came, or nothing was taken, in time."""


class Receiver(Protocol):
    """Who gets the frames of a channel."""

    def accept(self, frame: Frame) -> None: ...


class Link:
    """A stream with a guest behind it. `channel` is the number of its newest operation."""

    def __init__(self, io: IO, stream: GuestStream) -> None:
        self.maker = os.getpid()
        self.channel = 0
        self.closed = False
        self.reading = io.lock()
        self._sending = io.lock()
        self._stream = stream
        self._decoder = Decoder()
        self._greeted = False
        self._receiver: Receiver | None = None

    async def open(self, receiver: Receiver, request: bytes, tail: bytes = b"") -> int:
        """Start the next operation; `request` is JSON and `tail` frames that may follow at once.

        The first one goes out together with our HELLO: waiting for the guest's would cost a round trip.
        """
        self._receiver = receiver
        self.channel += 1
        opening = frames.encode(self.channel, OPEN, request)
        if self.channel == 1:
            opening = frames.encode_json(0, HELLO, {"version": VERSION}) + opening
        await self.send(opening + tail if tail else opening)
        return self.channel

    async def send(self, data: bytes) -> None:
        """Raises Broken when the guest is gone or takes nothing."""
        await self._sending.acquire()
        try:
            await self._stream.send(data)
        except TimeoutError as error:
            raise Silent from error
        except OSError as error:
            raise Ended from error
        finally:
            self._sending.release()

    async def fill(self, timeout: float | None) -> None:
        """Hand what the guest says next to the receiver. The caller holds `reading`.

        Raises:
            Silent, Ended: it says nothing.
            ProtocolError: it says something that no honest guest says.
        """
        try:
            data = await self._stream.recv(timeout)
        except TimeoutError as error:
            raise Silent from error
        except OSError as error:
            raise Ended from error
        if not data:
            raise Ended
        try:
            for frame in self._decoder.feed(data):
                self._dispatch(frame)
        except frames.BadFrame as error:
            raise ProtocolError(f"The guest broke the protocol: {error}.") from error

    def _dispatch(self, frame: Frame) -> None:
        if not self._greeted:
            self._greet(frame)
        elif frame.channel == self.channel and self._receiver is not None:
            self._receiver.accept(frame)
        elif frame.channel == 0 and frame.kind == END:
            error = frame.json().get("error")
            raise ProtocolError(f"The guest hung up: {from_wire(error if isinstance(error, dict) else {})}")
        elif not 0 < frame.channel <= self.channel:
            raise ProtocolError(f"The guest used a channel that nobody opened: {frame.channel}.")

    def _greet(self, frame: Frame) -> None:
        if frame.kind != HELLO or frame.channel != 0:
            raise ProtocolError("The guest did not begin with HELLO.")
        version = frame.json().get("version")
        if version != VERSION:
            raise ProtocolError(
                f"The guest speaks version {ascii(version)[:20]} of the protocol and this atoll version {VERSION}.",
                hint="Destroy the sandbox and make it anew, or use the atoll that made it.",
            )
        self._greeted = True

    def rest(self) -> None:
        """The operation has ended; whatever still comes for it is of no interest."""
        self._receiver = None

    def stale(self) -> bool:
        """Whether an idle link must not be used: another process made it, or the guest ended it."""
        return self.maker != os.getpid() or self._stream.stale()

    def close(self) -> None:
        self.closed = True
        self._receiver = None
        self._stream.close()
