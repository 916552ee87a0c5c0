"""Where a context's requests come from and where its answers go: through the guest, or by a lane.

A lane is a client's own stream, which the guest has handed over: a warm cell then wakes two processes
instead of three. What goes out on a lane is written in single sends of at most `ATOMIC` bytes, which the
kernel never interleaves: the guest writes to it too, when processes of the cell have said something.
"""

from __future__ import annotations

import select
import socket
import sys
from collections import deque
from os import sched_yield
from time import monotonic
from typing import Any, Deque, Dict, List, Optional, Tuple

from ..wire.frames import CALL, DATA, END, EVENT, HEADER, OPEN, Decoder, Frame, encode
from . import packets
from .packets import DECLINED, GO, LANE, PACKET, READY, SETTLE, SETTLED, SKIP, WATCH
from .port import SMALL, Bytes, HungUp, Port

_POLLRDHUP = 0x2000
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | _POLLRDHUP
_RECEIVE = 1 << 16
_COPIED = 1 << 12
"""What is longer is sent from where it lies."""
_EAGER = 0.0002
_SPACE = socket.CMSG_SPACE(4)


class GuestPort(Port):
    """Packets to and from the guest."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._assembler = packets.Assembler()
        self._early: Deque[Tuple[Frame, int]] = deque()
        self._settles = 0

    def put(self, kind: int, payload: Bytes, stream: int = 0) -> None:
        try:
            self.sock.send(encode(0, kind, payload, stream))
        except OSError as error:
            raise HungUp from error

    def end(self, payload: bytes) -> None:
        try:
            for packet in packets.split(END, payload):
                self.sock.send(packet)
        except OSError as error:
            raise HungUp from error

    def frame(self) -> Optional[Frame]:
        """Lanes that come meanwhile wait."""
        return self._next((CALL, DATA))[0]

    def upcoming(self) -> Tuple[Optional[Frame], int]:
        """A request, or a lane with its descriptor; None when the guest is gone."""
        return self._early.popleft() if self._early else self._next((OPEN, LANE))

    @property
    def has_early(self) -> bool:
        return bool(self._early)

    def settle(self) -> None:
        """Have the guest send on what processes of the cell have written, and what lies in the shared page."""
        self._settles += 1
        number = self._settles.to_bytes(4, "little")
        self.put(SETTLE, number)
        while True:
            frame = self._next((SETTLED,))[0]
            # An interrupt may have left the answer to an earlier one behind.
            if frame is None or frame.payload == number:
                return

    def announce(self) -> None:
        """Tell the guest that output lies in the shared page."""
        self.put(WATCH, b"")

    def may_go(self) -> bool:
        """Whether a request that had to wait is still wanted."""
        self.put(READY, b"")
        frame = self._next((GO, SKIP))[0]
        return frame is not None and frame.kind == GO

    def _next(self, wanted: Tuple[int, ...]) -> Tuple[Optional[Frame], int]:
        while True:
            packet, ancillary, _, _ = self.sock.recvmsg(2 * PACKET, _SPACE, socket.MSG_CMSG_CLOEXEC)
            if not packet:
                return None, -1
            fd = int.from_bytes(ancillary[0][2][:4], sys.byteorder) if ancillary else -1
            frame = self._assembler.add(packet, (OPEN, CALL))
            if frame is None:
                continue
            if frame.kind in wanted:
                return frame, fd
            if frame.kind in (OPEN, LANE):
                self._early.append((frame, fd))


class LanePort(Port):
    """A client's own stream. Frames carry the number of the request, which the client has chosen."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.lane = number
        self._decoder = Decoder()
        self._frames: Deque[Frame] = deque()
        self._held = b""

    @property
    def has_early(self) -> bool:
        return bool(self._frames)

    def put(self, kind: int, payload: Bytes, stream: int = 0) -> None:
        try:
            if self._held:
                held, self._held = self._held, b""
                self.sock.send(held)
            header = HEADER.pack(len(payload), self.channel, kind, stream)
            if len(payload) > _COPIED:
                self.sock.sendmsg((header, payload))
            else:
                self.sock.send(header + payload)
        except OSError as error:
            raise HungUp from error

    def conclude(self, payload: bytes) -> None:
        if len(payload) <= SMALL:
            self._held = HEADER.pack(len(payload), self.channel, EVENT, 0) + payload
        else:
            self.tell(payload)

    def end(self, payload: bytes) -> None:
        """By now nobody else writes, so it may be long."""
        held, self._held = self._held, b""
        try:
            self.sock.sendall(held + HEADER.pack(len(payload), self.channel, END, 0) + payload)
        except OSError as error:
            raise HungUp from error

    def frame(self) -> Optional[Frame]:
        while not self._frames:
            try:
                data = self.sock.recv(_RECEIVE)
            except OSError:
                data = b""
            if not data:
                return None
            self._frames.extend(self._decoder.feed(data))
        return self._frames.popleft()


class Reception:
    """Takes requests, one at a time, from wherever they come."""

    def __init__(self, sock: socket.socket) -> None:
        self.guest = GuestPort(sock)
        self._fd = sock.fileno()
        self._lanes: Dict[int, LanePort] = {}
        self._last = -1
        self._eager = False
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def next(self) -> Optional[Tuple[Port, Dict[str, Any]]]:
        """The next request; None when the guest is gone, which is the end of the context."""
        while True:
            for fd, mask in self._waiting():
                if fd != self._fd:
                    request = self._from_lane(self._lanes[fd], mask)
                    if request is not None:
                        self._last = fd
                        self._eager = True
                        return self._lanes[fd], request
                    continue
                frame, descriptor = self.guest.upcoming()
                if frame is None:
                    return None
                if frame.kind == LANE:
                    self._add_lane(descriptor, frame.payload)
                    continue
                request = frame.json()
                if not request.get("waits") or self.guest.may_go():
                    return self.guest, request

    def _waiting(self) -> List[Tuple[int, int]]:
        """Where something has come; the one that was served last comes last."""
        if self.guest.has_early:
            return [(self._fd, select.POLLIN)]
        for fd, lane in self._lanes.items():
            if lane.has_early:
                return [(fd, select.POLLIN)]
        ready = self._look() if self._eager else self._poll.poll()
        if len(ready) > 1:
            ready.sort(key=lambda entry: entry[0] == self._last)
        return ready

    def _look(self) -> List[Tuple[int, int]]:
        """Who has just asked something on a lane may ask the next thing at once: being woken up would take longer."""
        self._eager = False
        until = monotonic() + _EAGER
        while monotonic() < until:
            ready = self._poll.poll(0)
            if ready:
                return ready
            sched_yield()
        return self._poll.poll()

    def _add_lane(self, fd: int, number: bytes) -> None:
        if fd < 0:
            self.guest.put(DECLINED, number)  # the cells have used up all descriptors
            return
        self._lanes[fd] = LanePort(socket.socket(fileno=fd), int.from_bytes(number, "little"))
        self._poll.register(fd, select.POLLIN | _POLLRDHUP)

    def _from_lane(self, lane: LanePort, mask: int) -> Optional[Dict[str, Any]]:
        """A request; None for what is left of an earlier one. A client that is gone wants nothing any more."""
        frame = None if mask & _GONE else lane.frame()
        if frame is None:
            self._drop(lane)
        elif frame.kind == OPEN:
            lane.channel = frame.channel
            return frame.json()
        return None

    def _drop(self, lane: LanePort) -> None:
        fd = lane.sock.fileno()
        self._poll.unregister(fd)
        del self._lanes[fd]
        lane.sock.close()
