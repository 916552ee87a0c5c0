"""The wall in a steward's process: a guest that is its fork, with instances for contexts."""

from __future__ import annotations

import socket

from ..engine.steward.forked import ForkedWall
from ..guest.config import Config
from ..guest.server import Server
from . import wasm_server

_OVERHEAD = 48 << 20


class WasmWall(ForkedWall):
    """The job is that of a `ForkedWall`."""

    def start(self) -> socket.socket:
        control = super().start()
        self.facts["walls"] = ["WebAssembly"]
        return control

    def serve(self, control: socket.socket, score: int, kills: int | None) -> Server:
        memory = max(self.job["limits"]["memory"] - _OVERHEAD, _OVERHEAD)
        return wasm_server.WasmServer(control, Config(**self.job["config"]), score, kills, memory)
