"""A stream to a guest with somebody in the middle, who reads and changes the frames of both sides."""

from __future__ import annotations

import time

from atoll.wire import frames
from atoll.wire.frames import CALL, DATA, END, OPEN, Decoder, Frame


class Tampered:
    """Passes everything on. A subclass changes some of it in `outgoing` (to the guest) and `incoming`."""

    def __init__(self, stream):
        self._stream = stream
        self._sent, self._received = Decoder(), Decoder()

    async def send(self, data):
        await self._stream.send(_encoded(self.outgoing, self._sent.feed(data)))

    async def recv(self, timeout=None):
        while data := await self._stream.recv(timeout):
            if changed := _encoded(self.incoming, self._received.feed(data)):
                return changed
        return b""

    def stale(self):
        return self._stream.stale()

    def close(self):
        self._stream.close()

    def outgoing(self, frame):
        return [frame]

    def incoming(self, frame):
        return [frame]


def _encoded(change, received):
    changed = (new for frame in received for new in change(frame))
    return b"".join(frames.encode(frame.channel, frame.kind, frame.payload, frame.stream) for frame in changed)


def with_json(frame, value):
    return frame._replace(payload=frames.encode_json(0, frame.kind, value)[frames.HEADER.size :])


class Requests(Tampered):
    """Changes what is asked of the guest."""

    def outgoing(self, frame):
        if frame.kind != OPEN:
            return [frame]
        request = frame.json()
        self.change(request)
        return [with_json(frame, request)]

    def change(self, request):
        raise NotImplementedError


class Answers(Tampered):
    """Changes what the guest says at the end of an operation."""

    def incoming(self, frame):
        if frame.kind != END:
            return [frame]
        answer = frame.json()
        if "ok" in answer:
            self.change(answer["ok"])
        return [with_json(frame, answer)]

    def change(self, ok):
        raise NotImplementedError


class Buffered(Tampered):
    """Gives all output at the end."""

    def __init__(self, stream):
        super().__init__(stream)
        self._held = []

    def incoming(self, frame):
        if frame.kind == DATA:
            self._held.append(frame)
            return []
        held, self._held = (self._held, []) if frame.kind == END else ([], self._held)
        return [*held, frame]


class LeaderOnly(Requests):
    """Watches the time itself, and when it is up kills the command's first process and nothing else."""

    def __init__(self, stream):
        super().__init__(stream)
        self._deadline = None
        self._channel = 0
        self._late = False

    def change(self, request):
        timeout = request.pop("timeout", None) if request["op"] == "exec" else None
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._late = False

    def outgoing(self, frame):
        if frame.kind == OPEN:
            self._channel = frame.channel
        return super().outgoing(frame)

    async def recv(self, timeout=None):
        if self._deadline is None:
            return await super().recv(timeout)
        try:
            return await super().recv(max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            self._deadline, self._late = None, True
            kill = with_json(Frame(self._channel, CALL, 0, b""), {"signal": 9})
            await self._stream.send(_encoded(lambda frame: [frame], [kill]))
            return await super().recv(timeout)

    def incoming(self, frame):
        if frame.kind == END and self._late:
            answer = frame.json()
            answer["ok"].update(exit_code=124, timed_out=True)
            return [with_json(frame, answer)]
        return [frame]
