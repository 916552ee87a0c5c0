"""Running cells: what happens inside a context process."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from . import stories, twinning, variables
from .arguments import Arguments
from .awakening import Memory, notice
from .cellstreams import Streams
from .guard import Guard
from .interpreter import Interpreter
from .port import HungUp, Port
from .ports import Reception
from .refusal import Refused
from .shared import Shared

_STANDING = b'{"standing":true}'

Handler = Callable[[Dict[str, Any], Port], Dict[str, Any]]


def _fork() -> int:
    made = os.fork()
    if made == 0 and not twinning.is_twin():
        os._exit(0)
    return made


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
        self._handlers: Dict[str, Handler] = {
            "fork": lambda _request, _port: {},
            "variables": lambda request, port: variables.handle(self._interpreter.namespace, request, port),
            "freeze": lambda request, _port: memory.freeze(
                self._interpreter.namespace, request, self._interpreter.flags
            ),
        }

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
        if self._memory.asleep:
            self._interpreter.declines = self._wake() and do == "code"
        if do == "fork" and self._stand(request):
            return  # who asked for it is another sandbox's guest
        answer = self._interpreter.run(request, port) if do == "code" else self._handle(do, request, port)
        self._streams.begin(self._guest, None)
        if port.lane and self._streams.relays():
            self._guest.settle()
        self._shared.end()
        if port.lane and self._shared.relaying:
            self._guest.settle()  # it began to send something on before it could see the end
        port.end(answer)

    def _stand(self, request: Dict[str, Any]) -> bool:
        """Let the keeper make twins of this process. True in one."""
        self._streams.flush_own()
        self._interpreter.twinning = True
        try:
            seconds = Arguments(request).seconds("seconds") or 0.0
            if not twinning.stand(lambda: self._guest.tell(_STANDING), _fork, seconds):
                return False
        finally:
            self._interpreter.twinning = False
        twinning.settle_in()
        self._interpreter.settle_in(twinning.renew_loop)
        self._reception.renew()
        self._streams.begin(self._guest, None)
        self._shared.begin(0, 0, self._interpreter.count)
        self._shared.end()
        return True

    def _wake(self) -> bool:
        """Whether it was interrupted. That gives up one variable, so it may come at any time."""
        interrupts: List[int] = []

        def interrupt(number: int, _frame: Any) -> None:
            interrupts.append(number)
            if self._shared.running:
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        try:
            self._shared.running = True
            try:
                report = self._memory.wake(self._interpreter.namespace)
                self._interpreter.flags |= report.flags
                self._interpreter.notice = notice(report.lost)
            finally:
                self._shared.running = False
        except KeyboardInterrupt:
            self._shared.running = False  # once more: it may have come between the two
            self._interpreter.notice = notice({"some variables": "bringing them back was interrupted"})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return bool(interrupts)

    def _handle(self, do: str, request: Dict[str, Any], port: Port) -> bytes:
        """Anything but a cell; it may run code of the cells' objects, so it can be interrupted and can fail."""
        handler = self._handlers.get(do)
        try:
            if handler is None:
                raise Refused("unsupported", "A context does not know how to do %.50r." % (do,))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._shared.running = True
            try:
                return json.dumps({"ok": handler(request, port)}).encode("ascii")
            finally:
                self._shared.running = False
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except HungUp:
            raise
        except Refused as refusal:
            return json.dumps({"error": refusal.wire()}).encode("ascii")
        except BaseException as error:  # noqa: BLE001  # code of the cells' objects may raise anything
            self._shared.running = False
            message = "%s: %s" % (stories.name_of(error), stories.text_of(error))
            return json.dumps({"error": Refused("invalid_input", message).wire()}).encode("ascii")
