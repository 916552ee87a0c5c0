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
from .wasm_stock import memory_of, prepared


class WasmWall(ForkedWall):
    """The job is that of a `ForkedWall`."""

    def start(self) -> socket.socket:
        try:
            wasm_confine.program(os.uname().machine)
        except OSError as error:
            raise StartFailed(f"{error.strerror}.", "wall_unavailable") from error
        control = super().start()
        self.facts["walls"] = wasm_confine.walls(prepared().compiler)
        return control

    def serve(self, control: socket.socket, score: int, kills: int | None) -> Server:
        limits = self.job["limits"]
        terms = Terms(memory_of(limits["memory"]), wasm_confine.program(os.uname().machine))
        config = Config(**self.job["config"])
        return wasm_server.WasmServer(control, config, score, kills, terms, self.box, limits)
