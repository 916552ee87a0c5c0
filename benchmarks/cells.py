"""A warm cell: against a bare ping-pong between two Pythons, and against a Jupyter kernel."""

from __future__ import annotations

import asyncio
import os
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
LONGEST = 1000.0
"""Microseconds of a cell that nobody feels: a turn of a model takes seconds."""
PROCESSORS = sorted(os.sched_getaffinity(0))
# What a cell takes on its way, both ways.
PING, PONG = b"x" * 41, b"y" * 111

_ECHO = """
import socket
with socket.socket(fileno=0) as sock:
    while sock.recv(65536):
        sock.send(b"y" * 111)
"""


@contextmanager
def _echo(processor: int) -> Iterator[Callable[[], None]]:
    """A ping-pong with a Python that does nothing else, on one of the processors."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen([sys.executable, "-c", _ECHO], stdin=theirs) as process:
        theirs.close()
        os.sched_setaffinity(process.pid, {processor})

        def ping() -> None:
            ours.send(PING)
            ours.recv(65536)

        yield ping
        ours.close()


def _microseconds(action: Callable[[], object]) -> float:
    return milliseconds(action) * 1e3


def _pings(ping: Callable[[], None]) -> float:
    """A batch of them from the first processor. Left to itself the scheduler puts both sides on one processor or on
    two, from one run to the next, and the one takes four times as long as the other."""
    anywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {PROCESSORS[0]})
    try:
        return _batch(ping)
    finally:
        os.sched_setaffinity(0, anywhere)


def _batch(action: Callable[[], object]) -> float:
    return median([_microseconds(action) for _ in range(BATCH)])


async def _async_cells(ping: Callable[[], None]) -> tuple[float, float]:
    async with await AsyncSandbox.create() as sandbox:
        await sandbox.run_code(CELL)
        cells, pings = [], []
        for _ in range(ROUNDS):
            pings.append(_pings(ping))
            batch = []
            for _ in range(BATCH):
                start = asyncio.get_running_loop().time()
                await sandbox.run_code(CELL)
                batch.append((asyncio.get_running_loop().time() - start) * 1e6)
            cells.append(median(batch))
        return median(cells), median(pings)


def _beside_a_kernel(sandbox: Sandbox) -> tuple[float, float]:
    """The same cell here and in a Jupyter kernel over ZeroMQ, until its result is there and it is idle again."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:

        def run() -> None:
            reply = client.execute_interactive(CELL, store_history=False, output_hook=lambda _message: None)
            if reply["content"]["status"] != "ok":
                raise RuntimeError(f"the kernel failed: {reply['content']}")

        run()
        cells: list[float] = []
        kernels: list[float] = []
        for _ in range(4):
            cells += [_microseconds(lambda: sandbox.run_code(CELL)) for _ in range(KERNEL_CELLS // 4)]
            kernels += [_microseconds(run) for _ in range(KERNEL_CELLS // 4)]
        return median(cells), median(kernels)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def measure() -> list[Figure]:
    say("cells: warm ones, against a ping-pong and a Jupyter kernel")
    with _echo(PROCESSORS[-1]) as ping, _echo(PROCESSORS[0]) as ping_here, Sandbox.create() as sandbox:
        for _ in range(20):
            sandbox.run_code(CELL)
        cells, pings, pings_here = [], [], []
        for _ in range(ROUNDS):
            pings.append(_pings(ping))
            pings_here.append(_pings(ping_here))
            cells.append(_batch(lambda: sandbox.run_code(CELL)))
        cell, bare, bare_here = median(cells), median(pings), median(pings_here)
        awaited, bare_then = asyncio.run(_async_cells(ping))
        beside, kernel = _beside_a_kernel(sandbox)
    return [
        Figure("a warm cell", cell, "us", "", None, LONGEST),
        Figure("the same, awaited", awaited, "us", "", None, LONGEST),
        Figure("a warm cell", cell, "us", "a socket ping-pong, two processors", bare, None),
        Figure("the same", cell, "us", "a socket ping-pong, one processor", bare_here, None),
        Figure("the same, awaited", awaited, "us", "a socket ping-pong, two processors", bare_then, None),
        Figure("a warm cell", beside, "us", "a Jupyter kernel over ZMQ", kernel, 0.1),
    ]
