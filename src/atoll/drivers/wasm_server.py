"""The guest of a sandbox behind WebAssembly: a trusted process outside, since no guest can run inside.

It serves files as every guest does, below the directory of the sandbox; its contexts are instances; and there are no
commands, because there are no processes in WebAssembly.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from ..guest.channel import Channel, Operation
from ..guest.config import Config
from ..guest.contextstart import ContextSettings, Started
from ..guest.machine import Machine
from ..guest.paths import Root
from ..guest.refusal import UNSUPPORTED, Refused
from ..guest.server import Server
from . import wasm_context
from .wasm_context import Terms
from .wasm_stock import prepared, unpark

_COMMANDS = (
    "exec", "attach", "signal", "processes",
    "open_session", "find_session", "session", "interrupt_session", "close_session",
)  # fmt: skip
_NAME_A_LANGUAGE = ("code", "ask", "create_context")

Start = Callable[[Channel, dict[str, Any]], Operation]


class WasmServer(Server):
    """
    Args:
        box: the directory of the sandbox.
        limits: as `Bounds` takes them.
    """

    def __init__(
        self,
        control: socket.socket,
        config: Config,
        score: int,
        kills: int | None,
        terms: Terms,
        box: str,
        limits: dict[str, Any],
    ) -> None:
        super().__init__(control, config, score, kills)
        self._machine.become = functools.partial(_become, terms)
        self._machine.spare = functools.partial(_unpark, terms.memory, box, limits)

    def _table(self, root: Root) -> dict[str, Start]:
        table = super()._table(root)
        table.update(dict.fromkeys(_COMMANDS, _no_commands))
        for name in _NAME_A_LANGUAGE:
            table[name] = _python_only(table[name])
        return table


def _unpark(
    memory: int, box: str, limits: dict[str, Any], machine: Machine, settings: ContextSettings
) -> Started | None:
    """The context that was made ahead, if it may have as much memory as this one."""
    parked = unpark(memory)
    return None if parked is None else parked.start(machine, settings, box, limits)


def _become(terms: Terms, *arguments: Any, **_guarded: bool) -> NoReturn:
    """Guarded contexts are of another language, and refused."""
    wasm_context.become(prepared(), terms, *arguments)


def _no_commands(_channel: Channel, _request: dict[str, Any]) -> Operation:
    raise Refused(UNSUPPORTED, "There are no commands, sessions or processes in WebAssembly; use run_code().")


def _python_only(start: Start) -> Start:
    def checked(channel: Channel, request: dict[str, Any]) -> Operation:
        language = request.get("language")
        if language not in (None, "python"):
            raise Refused(UNSUPPORTED, f"WebAssembly has contexts for Python only, and none for {language!r:.50}.")
        return start(channel, request)

    return checked
