"""Many streams over one: for walls into which no descriptor can be passed, only bytes.

Both ends run the same code. Each stands beside a control socket as a keeper has it: a byte `c` with a descriptor that
arrives there at one end appears as a `c` with a descriptor at the other, and what is sent through the one comes out of
the other. A stream that nobody reads holds up no other: no more than `WINDOW` bytes of it are ever under way. The first
thing that the guest says to its keeper, that it serves, is passed on as well.

A frame is a kind, the number of a stream, a length, and that many bytes.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from typing import Callable, Deque, Dict

from .keeperline import NEW_CLIENT, KeeperLine, Order
from .loop import IN, OUT, Loop

WINDOW = 1 << 20
MAX_FRAME = 1 << 17
_CHUNK = 1 << 16
_ENOUGH = 4 << 20
# Far more frames than wait for one who reads, of which each answers one of its own.
_MOST_UNSENT = 1 << 17
# Pieces for a client that is gone: far more than come before the other side hears of that.
_MOST_LOST = 1 << 16
_HEAD = struct.Struct(">BII")
_NUMBER = struct.Struct(">I")
OPEN, DATA, CREDIT, END, ORDER, WORD = range(6)
_LONGEST_WORD = 4096


class BadFrame(Exception):
    """The other side does not keep to the protocol."""


class Channel:
    """One stream: a local socket, and what is on its way to it."""

    def __init__(self, board: Switchboard, number: int, local: socket.socket) -> None:
        self._board = board
        self._number = number
        self._local = local
        self._credit = WINDOW
        self._pending: Deque[bytes] = deque()
        self._waiting = 0
        self._heard_end = False
        self._told_end = False
        self._lost = 0
        local.setblocking(False)
        self.watch()

    def watch(self) -> None:
        """Look out for what can be done now."""
        reading = not self._told_end and self._credit > 0 and not self._board.is_full
        mask = (IN if reading else 0) | (OUT if self._pending else 0)
        if mask:
            self._board.loop.watch(self._local.fileno(), mask, self._ready)
        else:
            self._board.loop.forget(self._local.fileno())

    def _ready(self, mask: int) -> None:
        if mask & OUT and self._pending:
            self._write()
        if mask & ~OUT and not self._told_end and self._credit > 0 and not self._board.is_full:
            self._read()
        self._settle()

    def _read(self) -> None:
        try:
            data = self._local.recv(min(_CHUNK, self._credit))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._credit -= len(data)
            self._board.send(DATA, self._number, data)
        else:
            self._told_end = True
            self._board.send(END, self._number)

    def deliver(self, data: bytes) -> None:
        """Raises: BadFrame: it is more than was granted, or nothing, or nobody is there to have it any more."""
        self._waiting += len(data)
        if not data or self._waiting > WINDOW or self._heard_end or self._lost > _MOST_LOST:
            raise BadFrame("more bytes than were granted")
        self._pending.append(data)
        self._write()
        self._settle()

    def grant(self, count: int) -> None:
        """The other side has passed so many bytes on. Raises BadFrame."""
        if not count or self._credit + count > WINDOW:
            raise BadFrame("more credit than was used, or none")
        self._credit += count
        self._settle()

    @property
    def owed(self) -> int:
        """How much credit is still to come."""
        return WINDOW - self._credit

    def hear_end(self) -> None:
        """Raises BadFrame."""
        if self._heard_end:
            raise BadFrame("a second end")
        self._heard_end = True
        self._settle()

    def _write(self) -> None:
        done = 0
        try:
            while self._pending:
                count = self._local.send(self._pending[0])
                done += count
                rest = self._pending.popleft()[count:]
                if rest:
                    self._pending.appendleft(rest)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # Nobody reads any more; what comes is thrown away.
            done += sum(map(len, self._pending))
            self._lost += len(self._pending)
            self._pending.clear()
        if done:
            self._waiting -= done
            self._board.send(CREDIT, self._number, _NUMBER.pack(done))

    def _settle(self) -> None:
        """Pass an end on once all before it is through; forget a stream that has ended both ways."""
        if self._heard_end and not self._pending:
            if self._told_end:
                self.close()
                self._board.forget(self._number)
                return
            try:
                self._local.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it is closed already, which its next read tells
        self.watch()

    def close(self) -> None:
        self._board.loop.forget(self._local.fileno())
        self._local.close()


class Switchboard:
    """One end.

    Args:
        reader, writer: descriptors of the byte stream to the other end, which may be one and the same; closed here.
        control: its other end belongs to a `Server`, or to a keeper. Closed when the stream ends.
        ended: called once when either is gone.
        may_open: whether the other side may open streams; one that opens another is cut off.
    """

    def __init__(
        self,
        loop: Loop,
        reader: int,
        writer: int,
        control: socket.socket,
        ended: Callable[[], object],
        *,
        may_open: bool,
    ) -> None:
        self.loop = loop
        self._reader, self._writer = reader, writer if writer != reader else os.dup(writer)
        self._line = KeeperLine(control)
        self._control = control
        self._ended = ended
        self._may_open = may_open
        self._channels: Dict[int, Channel] = {}
        # What frames may still be on their way to streams that have ended: without a bound, the other side could keep
        # this one busy for nothing, which is outside of its limits.
        self._late = 0
        self._next = 1
        self._heard = bytearray()
        self._unsent: Deque[bytes] = deque()
        self._unsent_size = 0
        self._over = False
        self._had_word = False
        for fd in (self._reader, self._writer):
            os.set_blocking(fd, False)
        loop.watch(self._reader, IN, self._hear)
        loop.watch(control.fileno(), IN, self._hear_control)

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that nothing more should be read."""
        return self._unsent_size > _ENOUGH

    def send(self, kind: int, number: int, data: bytes = b"") -> None:
        if self._over:
            return
        self._unsent.append(_HEAD.pack(kind, number, len(data)) + data)
        self._unsent_size += _HEAD.size + len(data)
        self._flush()

    def forget(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        self._late += channel.owed if channel else 0

    def _flush(self, _mask: int = 0) -> None:
        was_full = self.is_full
        try:
            while self._unsent:
                count = os.write(self._writer, self._unsent[0])
                self._unsent_size -= count
                rest = self._unsent.popleft()[count:]
                if rest:
                    self._unsent.appendleft(rest)
        except (BlockingIOError, InterruptedError):
            self.loop.watch(self._writer, OUT, self._flush)
        except OSError:
            self.loop.soon(self.end)
            return
        else:
            self.loop.forget(self._writer)
        if was_full and not self.is_full:
            for channel in list(self._channels.values()):
                channel.watch()

    def _hear(self, _mask: int = 0) -> None:
        try:
            data = os.read(self._reader, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        self._heard += data
        try:
            self._take_frames()
        except (BadFrame, struct.error):
            self.end()

    def _take_frames(self) -> None:
        while not self._over and len(self._heard) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._heard)
            if length > MAX_FRAME:
                raise BadFrame("a frame that is too long")
            if len(self._heard) < _HEAD.size + length:
                return
            data = bytes(self._heard[_HEAD.size : _HEAD.size + length])
            del self._heard[: _HEAD.size + length]
            self._obey(kind, number, data)

    def _obey(self, kind: int, number: int, data: bytes) -> None:
        if len(self._unsent) > _MOST_UNSENT:
            raise BadFrame("it asks, and does not read what is answered")
        if kind in (OPEN, ORDER):
            if not self._may_open:
                raise BadFrame("this side takes no orders")
            self._pass_on(kind, number, data)
            return
        if kind == WORD:
            self._hear_word(data)
            return
        channel = self._channels.get(number)
        if channel is None:
            self._take_late(kind, data)
        elif kind == DATA:
            channel.deliver(data)
        elif kind == CREDIT:
            channel.grant(_NUMBER.unpack(data)[0])
        elif kind == END:
            channel.hear_end()
        else:
            raise BadFrame("an unknown kind of frame")

    def _take_late(self, kind: int, data: bytes) -> None:
        """It has ended here, both ways, while what it had sent was passed on there."""
        count = _NUMBER.unpack(data)[0] if kind == CREDIT else 0
        if not 0 < count <= self._late:
            raise BadFrame("a frame for a stream that is not there")
        self._late -= count

    def _pass_on(self, kind: int, number: int, data: bytes) -> None:
        """What came to the other end's control socket, to the one here."""
        if kind == ORDER:
            self._control.send(data)
            return
        if number in self._channels:
            raise BadFrame("a stream that is open already")
        ours, theirs = socket.socketpair()
        with theirs:
            socket_rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", theirs.fileno()))]
            self._control.sendmsg([NEW_CLIENT], socket_rights)
        self._channels[number] = Channel(self, number, ours)

    def _hear_word(self, data: bytes) -> None:
        """The one thing that a guest may say to its keeper, so that it cannot keep it busy."""
        if self._may_open or self._had_word or not 0 < len(data) <= _LONGEST_WORD:
            raise BadFrame("a word that nobody wants to hear")
        self._had_word = True
        self._control.send(data)

    def _hear_control(self, _mask: int = 0) -> None:
        for order in self._line.orders():
            self._take(order)

    def _take(self, order: Order) -> None:
        if not order.kind:
            self.end()
            return
        if self._may_open:
            self._say(order)
            return
        if order.kind != NEW_CLIENT:
            self.send(ORDER, 0, order.kind + order.rest)
        for fd in order.descriptors:
            number = self._next
            self._next += 1
            self._channels[number] = Channel(self, number, socket.socket(fileno=fd))
            self.send(OPEN, number)

    def _say(self, order: Order) -> None:
        """The first word of this guest. It asks nothing of a keeper that cannot answer."""
        if not self._had_word:
            self._had_word = True
            self.send(WORD, 0, order.kind + order.rest)

    def end(self) -> None:
        """Close everything. Doing so twice is harmless."""
        if self._over:
            return
        self._over = True
        for channel in list(self._channels.values()):
            channel.close()
        self._channels.clear()
        for fd in (self._reader, self._writer, self._control.fileno()):
            self.loop.forget(fd)
        os.close(self._reader)
        os.close(self._writer)
        self._control.close()
        self._ended()
