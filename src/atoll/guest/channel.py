"""Connections of clients and the channels on them, with credit both ways.

What a client has not yet taken is bounded: sources ask `Channel.room` before they produce anything.
The guest always reads; what it reads is bounded by the windows and by the number of channels.
"""

from __future__ import annotations

import socket
import sys
import traceback
from typing import Any, Callable, Dict

from ..wire import frames
from ..wire.frames import CALL, CLOSE, CREDIT, DATA, END, EOF, EVENT, HELLO, OPEN, VERSION, WINDOW, BadFrame, Frame
from .loop import IN, OUT, Loop
from .refusal import BUSY, INTERNAL, UNSUPPORTED, Refused, from_os_error

MAX_CHANNELS = 1024
EVENT_LIMIT = WINDOW // 2 - frames.HEADER.size
"""The longest EVENT: a client gives credit back when half of the window is used, so this much comes always."""

_HIGH_WATER = 1 << 18
_FLOOD = 16 << 20
"""Answers that nobody reads: whoever lets them pile up beyond this has stopped to be a client."""
_RECEIVE, _MUCH = 1 << 16, 1 << 18
"""What is received at once, and what if there was so much the last time: a large buffer is made and unmade each time.
"""


class Operation:
    """What a channel is for. The defaults suit one that takes no input."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def data(self, stream: int, payload: bytes) -> None:
        """Input came. Whoever takes it calls `channel.consumed`."""
        self.channel.consumed(len(payload))

    def eof(self, stream: int) -> None:
        """No more input."""

    def call(self, request: Dict[str, Any]) -> None:
        """The client wants something of the running operation."""

    def writable(self) -> None:
        """There may be room again."""

    def close(self) -> None:
        """The client no longer cares. The operation still ends its channel, once it has cleaned up."""


Opener = Callable[["Channel", Dict[str, Any]], Operation]


class Channel:
    __slots__ = ("_allowed", "_connection", "_credit", "_owed", "id", "open", "operation")

    def __init__(self, connection: Connection, number: int) -> None:
        self.id = number
        self.open = True
        self.operation = Operation(self)
        self._connection = connection
        self._credit = WINDOW
        self._allowed = WINDOW
        self._owed = 0

    @property
    def room(self) -> int:
        """How many bytes one DATA or EVENT may hold now, beside its header. An ended channel swallows everything."""
        if not self.open:
            return WINDOW
        return max(self._credit - frames.HEADER.size, 0) if self._connection.has_room() else 0

    def send_data(self, stream: int, payload: bytes) -> None:
        """At most `room` bytes."""
        self._spend(frames.encode(self.id, DATA, payload, stream))

    def send_event(self, payload: bytes) -> None:
        """JSON of at most `room` bytes."""
        self._spend(frames.encode(self.id, EVENT, payload))

    def _spend(self, frame: bytes) -> None:
        if self.open:
            self._credit -= len(frame)
            self._connection.send(frame)

    def end(self, result: Dict[str, Any]) -> None:
        """The operation succeeded; nothing follows."""
        self.answer({"ok": result})

    def fail(self, refusal: Refused) -> None:
        self.answer({"error": refusal.wire()})

    def answer(self, answer: Dict[str, Any]) -> None:
        """The end, as an object with `ok` or `error`."""
        if self.open:
            self.open = False
            self._connection.finish(self.id, frames.encode_json(self.id, END, answer))

    def consumed(self, size: int) -> None:
        """Give back credit for input; small amounts are saved up."""
        self._owed += size
        if self._owed >= WINDOW // 4 and self.open:
            self._allowed += self._owed
            self._connection.send(frames.encode_credit(self.id, self._owed))
            self._owed = 0

    def receive(self, frame: Frame) -> None:
        """Raises BadFrame."""
        kind = frame.kind
        if kind == DATA:
            self._allowed -= len(frame.payload)
            if self._allowed < 0:
                raise BadFrame("channel %d sent more than its window" % self.id)
            self.operation.data(frame.stream, frame.payload)
        elif kind == CREDIT:
            self._credit = min(self._credit + frame.credit(), WINDOW)
            self.operation.writable()
        elif kind == EOF:
            self.operation.eof(frame.stream)
        elif kind == CALL:
            self.operation.call(frame.json())
        elif kind == CLOSE:
            self.operation.close()
        else:
            raise BadFrame("a client sent a frame of kind %d" % kind)


class Connection:
    """One client's stream."""

    def __init__(self, loop: Loop, sock: socket.socket, opener: Opener, gone: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._sock = sock
        self._opener = opener
        self._gone = gone
        self._decoder = frames.Decoder(frames.MAX_OPEN)
        self._size = _RECEIVE
        self._out = bytearray()
        self._channels: Dict[int, Channel] = {}
        self._greeted = False
        self._blocked = False
        self._leaving = False
        self._closed = False
        sock.setblocking(False)
        loop.watch(sock.fileno(), IN, self._ready)

    def has_room(self) -> bool:
        return len(self._out) < _HIGH_WATER

    def send(self, frame: bytes) -> None:
        """Goes out at the end of the round, with whatever else is said in it."""
        if not self._out or len(self._out) > _FLOOD:
            self._loop.last(self._flush)
        self._out += frame

    def finish(self, number: int, frame: bytes) -> None:
        self._channels.pop(number, None)
        self.send(frame)

    def close(self) -> None:
        """Cancel everything on it that is not held. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        self._out.clear()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.open = False
            self._guard(channel, channel.operation.close)
        self._gone(self)

    def _ready(self, mask: int) -> None:
        if mask & OUT:
            self._flush()
        if mask & ~OUT and not self._closed:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(self._size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._size = _MUCH if len(data) >= _RECEIVE else _RECEIVE
        try:
            for frame in self._decoder.feed(data):
                self._dispatch(frame)
        except BadFrame as error:
            self._leave(str(error))

    def _dispatch(self, frame: Frame) -> None:
        if self._closed or self._leaving:
            return
        if not self._greeted:
            self._greet(frame)
        elif frame.kind == OPEN:
            self._open(frame)
        else:
            channel = self._channels.get(frame.channel)
            if channel is not None:
                self._guard(channel, channel.receive, frame)

    def _greet(self, frame: Frame) -> None:
        """Answer HELLO with HELLO: sent on its own, it would wake the client once more for nothing."""
        self.send(frames.encode_json(0, HELLO, {"version": VERSION}))
        if frame.kind != HELLO or frame.channel != 0:
            raise BadFrame("the client did not begin with HELLO")
        version = frame.json().get("version")
        if version != VERSION:
            raise BadFrame("this guest speaks version %d of the protocol, not %.20r" % (VERSION, version))
        self._greeted = True

    def _open(self, frame: Frame) -> None:
        number = frame.channel
        if number == 0 or number in self._channels:
            raise BadFrame("channel %d cannot be opened" % number)
        request = frame.json()
        channel = self._channels[number] = Channel(self, number)
        if len(self._channels) > MAX_CHANNELS:
            channel.fail(Refused(BUSY, "This stream already has %d channels open." % MAX_CHANNELS))
            return
        self._guard(channel, self._start, channel, request)

    def _start(self, channel: Channel, request: Dict[str, Any]) -> None:
        channel.operation = self._opener(channel, request)

    def _guard(self, channel: Channel, step: Callable[..., None], *arguments: Any) -> None:
        """An operation that breaks ends its own channel and nothing else."""
        try:
            step(*arguments)
        except BadFrame:
            raise
        except Refused as refusal:
            channel.fail(refusal)
        except OSError as error:
            channel.fail(from_os_error(error, None))
        except Exception as error:  # noqa: BLE001  # the client is told, and the story goes to stderr
            traceback.print_exc(file=sys.stderr)
            channel.fail(Refused(INTERNAL, "The guest failed: %s: %s" % (type(error).__name__, error)))

    def _leave(self, reason: str) -> None:
        """Say why on channel 0, as far as that can be said at once, and hang up."""
        self._leaving = True
        self.send(frames.encode_json(0, END, {"error": Refused(UNSUPPORTED, reason).wire()}))
        self._flush()
        self.close()

    def _flush(self) -> None:
        if self._closed or not self._out:
            return
        was_full = not self.has_room()
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self._out[:sent]
        if len(self._out) > _FLOOD:
            self.close()
            return
        self._await_drain(bool(self._out))
        if was_full and self.has_room():
            for channel in list(self._channels.values()):
                self._guard(channel, channel.operation.writable)

    def _await_drain(self, blocked: bool) -> None:
        if blocked != self._blocked:
            self._blocked = blocked
            self._loop.watch(self._sock.fileno(), IN | OUT if blocked else IN, self._ready)
