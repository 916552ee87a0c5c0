"""The MCP server: how soon it answers, and what a warm call costs, beside a call that does nothing and beside a peer.

The peer is snipara-sandbox, installed from PyPI into an environment of its own that is kept for the next run. Calls are
made with the official client, as programs make them, and once more with bare lines, which shows the server alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from .measure import Figure, clean_environment, interleaved, median, milliseconds, say

_STARTS = 9
_BLOCKS = 12
_CALLS = 40
_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_OURS = [os.path.join(os.path.dirname(sys.executable), "atoll"), "mcp-serve", "--space", "bench", "--with-echo"]
_CELL = ("execute_python", {"code": "1 + 1"})
_ECHO = ("echo", {"text": "1 + 1"})


def measure() -> list[Figure]:
    theirs = _peer()
    figures = [_start(theirs), *_warm(theirs), *_lines()]
    _tidy()
    return figures


def _peer() -> list[str] | None:
    """The command of the peer's server; None where it cannot be had."""
    place = os.path.join(os.path.expanduser("~"), ".cache", "atoll-bench", "snipara-sandbox")
    command = os.path.join(place, "bin", "snipara-sandbox")
    if not os.path.exists(command):
        say("Installing snipara-sandbox, once …")
        try:
            subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True)
            pip = [os.path.join(place, "bin", "pip"), "install", "--quiet", "snipara-sandbox[mcp]"]
            subprocess.run(pip, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"snipara-sandbox cannot be installed, so nothing is compared with it: {error}")
            return None
    return [command, "mcp-serve"]


class _Server:
    """A server and the other end of its pipes."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env=clean_environment(),
        )  # fmt: skip
        self.ask("initialize", _HELLO)

    def ask(self, method: str, params: dict[str, Any]) -> None:
        assert self._process.stdin
        assert self._process.stdout
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        self._process.stdin.write(line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise RuntimeError("the server has ended")
            answer += chunk

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        self.ask("tools/call", {"name": name, "arguments": arguments})

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def _start(theirs: list[str] | None) -> Figure:
    """From the start of the process to the answer to `initialize`."""

    def start(command: list[str]) -> float:
        servers: list[_Server] = []
        took = milliseconds(lambda: servers.append(_Server(command)))
        servers[0].close()
        return took

    what = "mcp: spawn -> initialize"
    start(_OURS)
    if theirs is None:
        return Figure(what, median([start(_OURS) for _ in range(_STARTS)]), "ms", "", None, 300.0)
    start(theirs)
    ours, peer = interleaved(_STARTS, 0.05, lambda: start(_OURS), lambda: start(theirs))
    return Figure(what, median(ours), "ms", "snipara-sandbox", median(peer), 0.5)


def _warm(theirs: list[str] | None) -> list[Figure]:
    """Warm calls with the official client, in turns, so that noise of the machine meets all alike."""
    import anyio

    seen = anyio.run(_conversations, theirs)
    what = "mcp: warm execute_python over stdio"
    figures = [Figure(what, median(seen["cell"]), "ms", "echo on the same server", median(seen["echo"]), 1.3)]
    if theirs is not None:
        figures.append(Figure(what, median(seen["cell"]), "ms", "snipara-sandbox", median(seen["peer"]), 0.5))
    return figures


async def _conversations(theirs: list[str] | None) -> dict[str, list[float]]:
    from contextlib import AsyncExitStack

    from mcp.client.stdio import StdioServerParameters, stdio_client

    from mcp import Client

    seen: dict[str, list[float]] = {"cell": [], "echo": [], "peer": []}

    async with AsyncExitStack() as stack:

        async def connect(command: list[str]) -> Any:
            parameters = StdioServerParameters(command=command[0], args=command[1:], env=clean_environment())
            quiet = stack.enter_context(open(os.devnull, "w"))  # noqa: ASYNC230, SIM115  # for its log
            return await stack.enter_async_context(Client(stdio_client(parameters, errlog=quiet), mode="legacy"))

        ours = await connect(_OURS)
        turns = [("echo", ours, _ECHO), ("cell", ours, _CELL)]
        if theirs is not None:
            turns.append(("peer", await connect(theirs), _CELL))
        for block in range(_BLOCKS + 1):
            for name, client, (tool, arguments) in turns:
                for _ in range(_CALLS):
                    began = time.perf_counter()
                    await client.call_tool(tool, arguments)
                    if block:  # the first warms up
                        seen[name].append((time.perf_counter() - began) * 1e3)
    return seen


def _lines() -> list[Figure]:
    """The same without a client's own work."""
    server = _Server(_OURS)
    try:
        cells, echoes = [], []
        for block in range(_BLOCKS + 1):
            for values, call in ((echoes, _ECHO), (cells, _CELL)):
                for _ in range(_CALLS):
                    took = milliseconds(lambda call=call: server.call(*call))
                    if block:
                        values.append(took)
    finally:
        server.close()
    what = "mcp: the same with bare lines"
    return [Figure(what, median(cells), "ms", "echo on the same server", median(echoes), None)]


def _tidy() -> None:
    from atoll import Sandbox

    for info in Sandbox.list({"atoll.mcp.space": "bench"}):
        if info.status != "gone":
            Sandbox.connect(info.id).destroy()
