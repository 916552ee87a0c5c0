"""Running cells: what happens inside a context process."""

from __future__ import annotations

import os
from typing import Any, Dict, NoReturn, Optional, Tuple

from .awakening import Memory
from .cellstreams import Streams
from .desk import Desk
from .guard import Guard
from .interpreter import Interpreter
from .port import HungUp, Port
from .ports import Reception
from .shared import Shared


class Service:
    """Serves requests, one after the other, until the guest hangs up.

    Args:
        taps: the guest's ends of the pipes that processes of a cell write to.
        memory: what it had before, brought back before the first request is served.
        guard: what its cells run under, if anything.
    """

    def __init__(
        self,
        reception: Reception,
        shared: Shared,
        taps: Tuple[int, ...],
        memory: Memory,
        guard: Optional[Guard] = None,
    ) -> None:
        self._reception = reception
        self._guest = reception.guest
        self._shared = shared
        self._memory = memory
        self._streams = Streams(self._guest, shared, taps)
        self._streams.install()
        self._interpreter = Interpreter(self._streams, shared, guard)
        self._desk = Desk(self._interpreter, shared, memory)

    def run(self) -> NoReturn:
        while True:
            upcoming = self._reception.next()
            if upcoming is None:
                os._exit(0)
            port, request = upcoming
            try:
                if request.get("do") == "dress" and port is self._guest:
                    self._memory.dress(request["env"])
                else:
                    self._serve(port, request)
            except HungUp:
                if port is self._guest:
                    os._exit(0)
                # The client of a lane is gone; the reception drops it when it looks there next.

    def _serve(self, port: Port, request: Dict[str, Any]) -> None:
        do = request.get("do", "code")
        if do == "code":
            self._interpreter.count += 1
        self._shared.begin(port.lane, port.channel, self._interpreter.count)
        if port.lane and self._shared.waiting:
            self._guest.settle()
        self._desk.wake(do)
        answer = self._desk.answer(do, request, port)
        self._streams.begin(self._guest, None)
        if port.lane and self._streams.relays():
            self._guest.settle()
        self._shared.end()
        if port.lane and self._shared.relaying:
            self._guest.settle()  # it began to send something on before it could see the end
        port.end(answer)
