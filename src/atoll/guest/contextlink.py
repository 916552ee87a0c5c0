"""A context's process, seen from the guest: its start, the packets both ways, its pipes, its end."""

from __future__ import annotations

import os
import signal
from collections import deque
from typing import Callable, Deque, Iterable, NamedTuple, Optional, Tuple

from ..wire.frames import CALL, DATA, END, EVENT, OPEN, STDERR, STDOUT, BadFrame, Frame, encode
from . import packets
from .contextstart import ContextSettings, Started, start
from .killing import send
from .loop import IN, OUT, Callback, nothing
from .machine import Machine
from .marks import put_mark
from .packets import SETTLE
from .pipes import Source
from .port import PACKET

_MESSAGES = (EVENT, END)
_AT_ONCE = 64
_QUEUED = 1024
"""More than the kernel keeps for who does not read."""
_MOST_UNSENT = 4096


class Listener(NamedTuple):
    """Who hears of a context's process.

    Args:
        frame: a DATA of Python's own streams, an EVENT, an END, or a packet of another kind.
        output: what came through a pipe, from processes of the cell.
        room: how much may come now.
        exited: the process is gone; its `status` is known and the last frame was told.
    """

    frame: Callable[[Frame], None]
    output: Callable[[int, bytes], None]
    room: Callable[[], int]
    exited: Callback


class ContextLink:
    """Starts a context when it is made, unless one is given. Raises Refused when the sandbox has no process left."""

    can_be_dressed = True
    """Whether a process that has run nothing can be given another environment."""
    costly = False
    """Whether its process is to stay, even if nothing has run in it for a while."""
    begun_at = 0.0
    """When it has begun a request itself, if it had to get ready first."""

    def __init__(
        self, machine: Machine, listener: Listener, settings: ContextSettings, started: Optional[Started] = None
    ) -> None:
        self.mark = machine.marks.issue()
        if started is None:
            started = start(machine, settings)
        else:
            put_mark(started.pid, self.mark)
        self.shared = started.shared
        self._loop = machine.loop
        self._listener = listener
        self._assembler = packets.Assembler()
        self._unsent: Deque[Tuple[bytes, Callback]] = deque()
        self._reading = self._writing = False
        self.alive = True
        self.status = 0
        self.reason = ""
        self._closed = False
        self._settling: Deque[Callback] = deque()
        self._number = 0
        self._sock, self.pid = started.sock, started.pid
        self._settled = started.settled
        started.watch(self._exited)
        self._sources = [self._source(fd, stream) for fd, stream in zip(started.outputs, (STDOUT, STDERR))]
        self._watch()

    def _source(self, fd: int, stream: int) -> Source:
        listener = self._listener
        return Source(
            self._loop,
            fd,
            take=lambda data: listener.output(stream, data),
            room=listener.room,
            ended=nothing,
            before=lambda: self._read(_QUEUED),
        )

    def request(self, payload: bytes) -> None:
        """Hand a request to the context."""
        self._number += 1
        self._send_all(packets.split(OPEN, payload, self._number))

    def call(self, payload: bytes) -> None:
        """Hand it what the client says to the request that runs."""
        self._send_all(packets.split(CALL, payload, self._number))

    def feed(self, payload: bytes, taken: Callback) -> None:
        """Hand it input for the request that runs; `taken` is called when that has gone."""
        self._unsent.extend(
            (encode(self._number, DATA, payload[at : at + PACKET]), nothing) for at in range(0, len(payload), PACKET)
        )
        self._unsent.append((b"", taken))
        self._write()

    def _send_all(self, parts: Iterable[bytes]) -> None:
        self._unsent.extend((part, nothing) for part in parts)
        if len(self._unsent) > _MOST_UNSENT:
            self.kill()  # it asks and asks and does not listen
        self._write()

    def interrupt(self) -> bool:
        """SIGINT; False when nothing runs that could be interrupted."""
        if not self.alive or not self.shared.running:
            return False
        send([self.pid], signal.SIGINT)
        return True

    def kill(self) -> None:
        if self.alive:
            send([self.pid], signal.SIGKILL)

    def resume(self) -> None:
        """There may be room again."""
        self._watch()
        for source in self._sources:
            source.resume()

    def settle(self, done: Callback) -> None:
        """Call back when all that processes of the cell have written by now has been taken."""
        self._settling.append(done)
        if len(self._settling) == 1:
            self._settle_next()

    def _settle_next(self) -> None:
        """One after the other: a thread may ask for it while a cell ends."""
        waiting = list(self._sources)

        def next_one() -> None:
            if waiting:
                waiting.pop().settle(next_one)
                return
            self._settling[0]()
            self._settling.popleft()
            if self._settling:
                self._settle_next()

        next_one()

    def close(self) -> None:
        """Hear nothing more of it; its end is not told either."""
        self._closed = True
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        for source in self._sources:
            source.close()
        if self._settled >= 0:
            os.close(self._settled)
            self._settled = -1

    def _watch(self) -> None:
        """Listen to the context as far as there is room, and for room to write where something waits."""
        if not self.alive:
            return
        reading, writing = self._listener.room() > 0, bool(self._unsent)
        if (reading, writing) == (self._reading, self._writing):
            return
        self._reading, self._writing = reading, writing
        self._loop.forget(self._sock.fileno())
        if reading or writing:
            self._loop.watch(self._sock.fileno(), (IN if reading else 0) | (OUT if writing else 0), self._ready)

    def _ready(self, mask: int) -> None:
        if mask & OUT:
            self._write()
        if mask & ~OUT:
            self._read(_AT_ONCE)

    def _write(self) -> None:
        while self._unsent:
            packet, taken = self._unsent[0]
            try:
                if packet:
                    self._sock.send(packet)
            except BlockingIOError:
                break
            except OSError:
                self._unsent.clear()  # it is dying; its exit will be told
                break
            self._unsent.popleft()
            taken()
        self._watch()

    def _read(self, count: int) -> None:
        for _ in range(count):
            if self.alive and self._listener.room() <= 0:
                break
            try:
                packet = self._sock.recv(packets.RECEIVED)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            if not packet:
                self._loop.forget(self._sock.fileno())
                return
            if not self._hear(packet):
                return
        self._watch()

    def _hear(self, packet: bytes) -> bool:
        """False when it makes no sense: code of the cell has got hold of the socket, so the context ends."""
        try:
            frame = self._assembler.add(packet, _MESSAGES)
        except BadFrame:
            self.kill()
            return False
        if frame is None:
            return True
        if frame.kind == SETTLE:
            number = frame.payload
            self.settle(lambda: self._tell_settled(number))
        elif frame.channel == self._number or frame.kind == DATA:
            # What a cell says of itself when it has forged its end before is of no interest any more.
            self._listener.frame(frame)
        return True

    def _tell_settled(self, number: bytes) -> None:
        if self._settled >= 0:
            try:
                os.write(self._settled, number)
            except OSError:
                self.kill()  # it asks and asks and does not listen

    def _exited(self, status: int) -> None:
        self.alive = False
        self.status = status
        if self._closed:
            return
        self._read(1 << 16)
        self._loop.forget(self._sock.fileno())
        self._listener.exited()
