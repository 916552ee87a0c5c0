"""A context's process, seen from the guest: its start, the packets both ways, its pipes, its end."""

from __future__ import annotations

import signal
import socket
import sys
from collections import deque
from typing import Callable, Deque, Iterable, NamedTuple, Optional, Tuple

from ..wire.frames import CALL, DATA, END, EVENT, HEADER, OPEN, STDERR, STDOUT, BadFrame, Frame, encode
from . import packets
from .contextstart import ContextSettings, Started, start
from .killing import send
from .loop import IN, OUT, Callback, nothing
from .machine import Machine
from .marks import put_mark
from .packets import GO, LANE, PACKET, SETTLED, SKIP
from .pipes import Source

_MESSAGES = (EVENT, END)
_AT_ONCE = 64
_MOST_UNSENT = 4096


class Listener(NamedTuple):
    """Who hears of a context's process.

    Args:
        frame: a DATA of Python's own streams, an EVENT, an END, or a packet of another kind.
        output: what came through a pipe, from processes of the cell.
        room: how much may come now.
        exited: the process is gone; its `status` is known and the last frame was told.
        reading: a pipe is about to be read, or what came is taken.
    """

    frame: Callable[[Frame], None]
    output: Callable[[int, bytes], None]
    room: Callable[[], int]
    exited: Callback
    reading: Optional[Callable[[bool], None]] = None


class ContextLink:
    """Starts a context when it is made, unless one is given. Raises Refused when the sandbox has no process left."""

    takes_lanes = True
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
        self.settling = False
        self._closed = False
        self._sock, self.pid = started.sock, started.pid
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
            reading=listener.reading,
        )

    def request(self, payload: bytes) -> None:
        """Hand a request to the context."""
        self._send_all(packets.split(OPEN, payload))

    def call(self, payload: bytes) -> None:
        """Hand it what the client says to the request that runs."""
        self._send_all(packets.split(CALL, payload))

    def feed(self, payload: bytes, taken: Callback) -> None:
        """Hand it input for the request that runs; `taken` is called when that has gone."""
        self._unsent.extend(
            (encode(0, DATA, payload[at : at + PACKET]), nothing) for at in range(0, len(payload), PACKET)
        )
        self._unsent.append((b"", taken))
        self._write()

    def admit(self, wanted: bool) -> None:
        """Answer a context that is about to begin a request which had to wait."""
        self._send_all([encode(0, GO if wanted else SKIP)])

    def settled(self, number: bytes) -> None:
        """Answer the request to settle that had this number."""
        self._send_all([encode(0, SETTLED, number)])

    def add_lane(self, number: int, client: socket.socket) -> None:
        """Give it a stream of a client. Raises OSError when it takes none."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, client.fileno().to_bytes(4, sys.byteorder))
        self._sock.sendmsg([encode(0, LANE, number.to_bytes(4, "little"))], [rights])

    def _send_all(self, parts: Iterable[bytes]) -> None:
        self._unsent.extend((part, nothing) for part in parts)
        if len(self._unsent) > _MOST_UNSENT:
            self.kill()  # it asks and asks and does not listen
        self._write()

    def interrupt(self, lane: Optional[int] = None) -> bool:
        """SIGINT; False when nothing runs that could be interrupted, or, if a `lane` is given, nothing of it."""
        if not self.alive or not self.shared.running or lane not in (None, self.shared.begun.lane):
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
        waiting = list(self._sources)
        self.settling = True

        def next_one() -> None:
            if waiting:
                waiting.pop().settle(next_one)
            else:
                self.settling = False
                done()

        next_one()

    def close(self) -> None:
        """Hear nothing more of it; its end is not told either."""
        self._closed = True
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        for source in self._sources:
            source.close()

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
                packet = self._sock.recv(packets.PACKET + HEADER.size)
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
        if frame is not None:
            self._listener.frame(frame)
        return True

    def _exited(self, status: int) -> None:
        self.alive = False
        self.status = status
        if self._closed:
            return
        self._read(1 << 16)
        self._loop.forget(self._sock.fileno())
        self._listener.exited()
