"""An MCP server that is a process of ours, talked to over its standard input and output.

Like the transport of the SDK, but whatever a server writes is bounded: a line that does not end, and what it says on
standard error, of which the end is kept to tell. And the whole group of its processes is gone afterwards, also when the
server itself ended well and left others behind.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

    from ..config.servers import Server

LONGEST_LINE = 16 << 20
_GRACE = 2.0
_LAST_WORDS = 1.0
_MOST_SAID = 2000
_POLL = 0.01


class Said:
    """The end of what a server wrote where no answers are, for the sentence that tells why it is gone."""

    def __init__(self) -> None:
        self._text = ""
        self.reason = ""
        self.all_said = anyio.Event()

    def add(self, data: bytes) -> None:
        self._text = (self._text + data.decode("utf-8", "replace"))[-_MOST_SAID:]

    def __str__(self) -> str:
        lines = deque((line.strip() for line in self._text.splitlines() if line.strip()), maxlen=8)
        return " | ".join(lines)


@asynccontextmanager
async def stdio(server: Server, said: Said) -> AsyncGenerator[Any, None]:
    """Start it; the streams of its messages.

    Raises:
        OSError: it cannot be started.
    """
    with anyio.CancelScope(shield=True):  # a cancellation in between would leave a process that nobody knows
        process = await anyio.open_process(
            list(server.command),
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            start_new_session=True,
        )
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - pipes are the default
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, into, said)
            tasks.start_soon(_listen, process.stderr, said)
            tasks.start_soon(_write, process.stdin, out, into)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for stream in (into, incoming, outgoing, out):
                stream.close()
            await _end(process)


async def _read(pipe: ByteReceiveStream, into: Any, said: Said) -> None:
    rest = bytearray()
    with into, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            try:
                data = await pipe.receive()
            except anyio.EndOfStream:
                # Its last words are on their way, and those who wait for an answer are to hear them.
                with anyio.move_on_after(_LAST_WORDS):
                    await said.all_said.wait()
                return
            *lines, tail = data.split(b"\n")
            for line in lines:
                whole, rest = bytes(rest + line), bytearray()
                await _take(whole, into, said)
            rest += tail
            if len(rest) > LONGEST_LINE:
                said.reason = f"it wrote a line of more than {LONGEST_LINE >> 20} MiB"
                return


async def _take(line: bytes, into: Any, said: Said) -> None:
    if not line.strip():
        return
    try:
        message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        # Banners and prints of a server that does not keep to the protocol; told when it fails.
        said.add(line[:_MOST_SAID] + b"\n")
    else:
        await into.send(SessionMessage(message))


async def _listen(pipe: ByteReceiveStream, said: Said) -> None:
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            said.add(await pipe.receive())
    said.all_said.set()


async def _write(pipe: ByteSendStream, out: Any, into: Any) -> None:
    try:
        with out:
            async for message in out:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await pipe.send(text.encode() + b"\n")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        # It takes nothing more, so it will not answer either: who waits is told now.
        into.close()


async def _end(process: Process) -> None:
    """As the protocol has it: close its input, wait; then ask it to end, wait; then kill all of it."""
    assert process.stdin  # noqa: S101 - as above
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    # What it still wants to say would block it, if nobody read it.
    async with anyio.create_task_group() as drains:
        drains.start_soon(_drain, process.stdout)
        drains.start_soon(_drain, process.stderr)
        if not await _ended(process):
            _signal(process, signal.SIGTERM)
            await _ended(process)
        # Also when the server has ended: what it started is in its group, and nobody else knows of it.
        _signal(process, signal.SIGKILL)
        await _ended(process)
        drains.cancel_scope.cancel()
    for pipe in (process.stdout, process.stderr):
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            if pipe is not None:
                await pipe.aclose()
    # asyncio keeps its transport open, and warns, while anybody holds the other end of a pipe.
    close = getattr(getattr(getattr(process, "_process", None), "_transport", None), "close", None)
    if callable(close):
        with suppress(PermissionError):
            close()


async def _drain(pipe: ByteReceiveStream | None) -> None:
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while pipe is not None:
            await pipe.receive()


async def _ended(process: Process) -> bool:
    """Within the time of grace. Not by `wait()`, which waits for all that hold the pipes, too."""
    with anyio.move_on_after(_GRACE):
        while process.returncode is None:  # noqa: ASYNC110 - nothing tells it but asking
            await anyio.sleep(_POLL)
    return process.returncode is not None


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
