"""Operations written as generators, which the loop runs in slices so that no client holds up another.

A generator yields `WAIT` when it needs room, input or an event to go on, and `GO_ON` wherever it may be
interrupted. What it returns is the result of the operation. Its `finally` blocks run when it is cancelled.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections import deque
from time import monotonic
from typing import Any, Callable, Deque, Dict, Generator, List, Optional

from ..wire.frames import STDOUT
from .channel import EVENT_LIMIT, Channel, Operation
from .loop import Loop
from .refusal import CANCELLED, INTERNAL, Refused, from_os_error

GO_ON = 0
WAIT = 1

Steps = Generator[int, None, Dict[str, Any]]
Part = Generator[int, None, None]

_SLICE = 0.005


class Job(Operation):
    """Runs a generator as the operation of a channel. `path` is what its errors are about."""

    def __init__(self, loop: Loop, channel: Channel, start: Callable[[Job], Steps], path: Optional[str] = None) -> None:
        super().__init__(channel)
        self.inbox: Deque[bytes] = deque()
        self.input_ended = False
        self._loop = loop
        self._path = path
        self._scheduled = False
        self._over = False
        self._steps = start(self)
        self._run()

    def wake(self) -> None:
        """What it waited for may be there."""
        if not self._scheduled and not self._over:
            self._scheduled = True
            self._loop.soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._over:
            return
        limit = monotonic() + _SLICE
        try:
            while next(self._steps) == GO_ON:
                if monotonic() >= limit:
                    self.wake()
                    return
        except StopIteration as stop:
            self._over = True
            self.channel.end(stop.value)
        except Refused as refusal:
            self._fail(refusal)
        except OSError as error:
            self._fail(from_os_error(error, self._path))
        except Exception as error:  # noqa: BLE001  # the client is told, and the story goes to stderr
            traceback.print_exc(file=sys.stderr)
            self._fail(Refused(INTERNAL, "The guest failed: %s: %s" % (type(error).__name__, error)))

    def _fail(self, refusal: Refused) -> None:
        self._over = True
        self.channel.fail(refusal)

    def data(self, stream: int, payload: bytes) -> None:
        if self._over or not payload:
            self.channel.consumed(len(payload))
            return
        self.inbox.append(payload)
        self.wake()

    def eof(self, stream: int) -> None:
        self.input_ended = True
        self.wake()

    def writable(self) -> None:
        self.wake()

    def close(self) -> None:
        if not self._over:
            self._over = True
            try:
                self._steps.close()
            finally:
                self.channel.fail(Refused(CANCELLED, "The operation was cancelled."))

    def take(self) -> Generator[int, None, bytes]:
        """The next input, b"" at its end."""
        while not self.inbox:
            if self.input_ended:
                return b""
            yield WAIT
        payload = self.inbox.popleft()
        self.channel.consumed(len(payload))
        return payload

    def send(self, payload: bytes) -> Part:
        """Download data of any size, in pieces that the client has room for."""
        view = memoryview(payload)
        while view:
            room = self.channel.room
            if room <= 0:
                yield WAIT
                continue
            piece = view[:room]
            self.channel.send_data(STDOUT, bytes(piece))
            view = view[len(piece) :]

    def tell(self, name: str, items: List[Any]) -> Part:
        """EVENTs `{name: items}`, as many as their size needs."""
        payload = json.dumps({name: items}, separators=(",", ":")).encode("ascii")
        if len(payload) > EVENT_LIMIT and len(items) > 1:
            middle = len(items) // 2
            yield from self.tell(name, items[:middle])
            yield from self.tell(name, items[middle:])
            return
        while self.channel.room < len(payload):
            yield WAIT
        self.channel.send_event(payload)
