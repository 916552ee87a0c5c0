"""The wall in a steward's process: a guest that is its fork, with instances for contexts."""

from __future__ import annotations

import os
import socket

from ..engine.steward.forked import ForkedWall
from ..engine.steward.wall import StartFailed
from ..guest.config import Config
from ..guest.server import Server
from . import wasm_confine, wasm_server
from .wasm_context import Terms

_OVERHEAD = 48 << 20


class WasmWall(ForkedWall):
    """The job is that of a `ForkedWall`."""

    def start(self) -> socket.socket:
        try:
            self._code = wasm_confine.program(os.uname().machine)
        except OSError as error:
            raise StartFailed(f"{error.strerror}.", "wall_unavailable") from error
        control = super().start()
        self.facts["walls"] = wasm_confine.walls()
        return control

    def serve(self, control: socket.socket, score: int, kills: int | None) -> Server:
        memory = max(self.job["limits"]["memory"] - _OVERHEAD, _OVERHEAD)
        terms = Terms(memory, self._code)
        return wasm_server.WasmServer(control, Config(**self.job["config"]), score, kills, terms)
