"""Between the portal of an instance and those whom its context serves: requests go in, answers and output come out.

Everything that comes from the instance is hostile.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import time
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from ..guest import freezing, inwasm
from ..guest.contextprocess import Ends
from ..guest.guestport import GuestPort
from ..guest.port import PACKET, HungUp
from ..wire.frames import CALL, DATA, EVENT, MAX_PAYLOAD
from . import wasm_abi as abi

_LENGTH = struct.Struct("<I")
_LONGEST = MAX_PAYLOAD + 1
_KINDS = (DATA, EVENT)
"""What an instance may send to its client. The end of an answer is the host's to tell."""


class _Interrupted(Exception):
    """A wait for the client has to end."""


class Bridge:
    """One bridge.

    Args:
        begin: gives what the instance is to be told first; it may wait.
    """

    def __init__(self, ends: Ends, begin: Callable[[], dict[str, Any]]) -> None:
        self._shared = ends.shared
        self._port = GuestPort(ends.wire)
        self._do = ""
        self._outgoing = b""
        self._begin: Callable[[], dict[str, Any]] | None = begin
        self._requests = self._serve()
        self._begun = False
        self._wanted = b""
        self._answer = b""
        self._told = -1
        self._until = 0.0
        self._waits = False

    def says(self, size: int) -> bytes:
        """What the instance reads."""
        if not self._outgoing:
            self._outgoing = _framed(self._next())
        data, self._outgoing = self._outgoing[:size], self._outgoing[size:]
        return data

    def hears(self, message: memoryview) -> None:
        """What the instance writes. Raises OSError."""
        if not 0 < len(message) <= _LONGEST:
            raise abi.failure(errno.EMSGSIZE)
        word = bytes(message[:1])
        if word == inwasm.PUT:
            self._put(message)
        elif word == inwasm.RUNS:
            self._shared.running = bytes(message[1:2]) == b"\1"
        elif word == inwasm.SAY and self._told >= 0:
            self._set_alarm()
            os.write(self._told, message[1:])
        else:
            self._wanted, self._answer = word, bytes(message[1:])

    def interrupt(self) -> None:
        """Called where signals are handled. Raises _Interrupted out of a wait for the client."""
        if self._waits:
            self._waits = False
            raise _Interrupted

    def _put(self, message: memoryview) -> None:
        if len(message) < 3 or message[1] not in _KINDS or len(message) - 3 > PACKET:
            raise abi.failure(errno.EINVAL)
        try:
            self._port.put(message[1], message[3:], message[2])
        except HungUp:
            raise abi.failure(errno.EPIPE) from None

    def _next(self) -> bytes:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            return json.dumps(begin()).encode()
        if self._wanted == inwasm.ANSWER:
            return self._request()
        if self._wanted == inwasm.WANTS:
            return self._frame()
        if self._wanted == inwasm.FORK:
            return self._copy()
        raise abi.failure(errno.EINVAL)

    def _request(self) -> bytes:
        answer, self._answer = self._answer, b""
        request = self._requests.send(answer) if self._begun else next(self._requests)
        self._begun = True
        return json.dumps(request).encode()

    def _serve(self) -> Generator[dict[str, Any], bytes, NoReturn]:
        """Gives one request after the other, and takes their answers; as `guest.cells.Service` does it."""
        try:
            while (request := self._port.request()) is not None:
                if request.get("do") == "dress":
                    yield request
                    continue
                self._do = request.get("do", "code")
                answer = yield request
                self._shared.running = False
                self._port.end(answer)
        except HungUp:
            pass
        os._exit(0)

    def _frame(self) -> bytes:
        try:
            self._waits = True
            frame = self._port.frame()
            self._waits = False
        except _Interrupted:
            return b""
        if frame is None or frame.kind not in (CALL, DATA):
            return b""
        return bytes((frame.kind, frame.stream)) + frame.payload

    def _copy(self) -> bytes:
        """Make a copy of this process that can be spared; its parent gives what it has said. A copy makes none."""
        if self._do != "freeze" or self._told >= 0:
            raise abi.failure(errno.EPERM)
        seconds = min(float(json.loads(self._answer)), freezing.SECONDS)
        deadline = time.monotonic() + seconds
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(reader)
            self._told, self._until = writer, deadline
            self._set_alarm()
            return b"null"
        os.close(writer)
        outcome = freezing.watch_child(reader, pid, deadline, lambda child: os.waitpid(child, 0)[1])
        return json.dumps(outcome).encode()

    def _set_alarm(self) -> None:
        """In a copy: nobody may kill it, so that it sees to its end itself. A variable has half of the time left."""
        left = self._until - time.monotonic()
        if left <= 0:
            os._exit(0)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, left / 2))


def _framed(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message
