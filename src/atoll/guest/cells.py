"""Running cells: what happens inside a context process."""

from __future__ import annotations

import os
from typing import Any, Dict, NoReturn, Optional

from .awakening import Memory
from .cellstreams import Streams
from .desk import Desk
from .guard import Guard
from .guestport import GuestPort
from .interpreter import Interpreter
from .port import HungUp
from .shared import Shared


class Service:
    """Serves requests, one after the other, until the guest hangs up.

    Args:
        memory: what it had before, brought back before the first request is served.
        guard: what its cells run under, if anything.
    """

    def __init__(
        self, port: GuestPort, streams: Streams, shared: Shared, memory: Memory, guard: Optional[Guard] = None
    ) -> None:
        self._port = port
        self._memory = memory
        self._streams = streams
        self._streams.install()
        self._interpreter = Interpreter(self._streams, shared, guard)
        self._desk = Desk(self._interpreter, shared, memory)

    def run(self) -> NoReturn:
        try:
            while True:
                request = self._port.request()
                if request is None:
                    break
                if request.get("do") == "dress":
                    self._memory.dress(request["env"])
                else:
                    self._serve(request)
        except HungUp:
            pass
        os._exit(0)

    def _serve(self, request: Dict[str, Any]) -> None:
        do = request.get("do", "code")
        if do == "code":
            self._interpreter.count += 1
        self._desk.wake(do)
        answer = self._desk.answer(do, request, self._port)
        self._streams.begin(None)
        self._port.end(answer)
