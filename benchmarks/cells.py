"""A warm cell: against a bare ping-pong between two Pythons, and against a Jupyter kernel."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll import AsyncSandbox, Sandbox

from .measure import Figure, median, milliseconds, say

CELL = "1 + 1"
ROUNDS, BATCH = 10, 200
KERNEL_CELLS = 200
# What a cell takes on its way, both ways.
PING, PONG = b"x" * 41, b"y" * 111

_ECHO = """
import socket
with socket.socket(fileno=0) as sock:
    while sock.recv(65536):
        sock.send(b"y" * 111)
"""


@contextmanager
def _echo() -> Iterator[Callable[[], None]]:
    """A ping-pong with a Python that does nothing else."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen([sys.executable, "-c", _ECHO], stdin=theirs):
        theirs.close()

        def ping() -> None:
            ours.send(PING)
            ours.recv(65536)

        yield ping
        ours.close()


def _microseconds(action: Callable[[], object]) -> float:
    return milliseconds(action) * 1e3


def _batch(action: Callable[[], object]) -> float:
    return median([_microseconds(action) for _ in range(BATCH)])


async def _async_cells(ping: Callable[[], None]) -> tuple[float, float]:
    async with await AsyncSandbox.create() as sandbox:
        await sandbox.run_code(CELL)
        cells, pings = [], []
        for _ in range(ROUNDS):
            pings.append(_batch(ping))
            batch = []
            for _ in range(BATCH):
                start = asyncio.get_running_loop().time()
                await sandbox.run_code(CELL)
                batch.append((asyncio.get_running_loop().time() - start) * 1e6)
            cells.append(median(batch))
        return median(cells), median(pings)


def _kernel_cells() -> float:
    """The same cell in a Jupyter kernel over ZeroMQ: until its result is there and it is idle again."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:

        def run() -> None:
            reply = client.execute_interactive(CELL, store_history=False, output_hook=lambda _message: None)
            if reply["content"]["status"] != "ok":
                raise RuntimeError(f"the kernel failed: {reply['content']}")

        run()
        return median([_microseconds(run) for _ in range(KERNEL_CELLS)])
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def measure() -> list[Figure]:
    say("cells: warm ones, against a ping-pong and a Jupyter kernel")
    with _echo() as ping, Sandbox.create() as sandbox:
        for _ in range(20):
            sandbox.run_code(CELL)
            ping()
        cells, pings = [], []
        for _ in range(ROUNDS):
            pings.append(_batch(ping))
            cells.append(_batch(lambda: sandbox.run_code(CELL)))
        cell, bare = median(cells), median(pings)
        awaited, bare_then = asyncio.run(_async_cells(ping))
        beside = [_microseconds(lambda: sandbox.run_code(CELL)) for _ in range(KERNEL_CELLS)]
    return [
        Figure("a warm cell", cell, "us", "a bare socket ping-pong", bare, 4.0),
        Figure("the same, awaited", awaited, "us", "the same", bare_then, 6.0),
        Figure("a warm cell", median(beside), "us", "a Jupyter kernel over ZMQ", _kernel_cells(), 0.02),
    ]
