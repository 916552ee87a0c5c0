"""An MCP server that is a process of ours, talked to over its standard input and output.

Like the transport of the SDK, but whatever a server writes is bounded: a line that does not end or holds too much, and
what it says on standard error, of which the end is kept to tell. And all of its processes are gone afterwards, also
when the server itself ended well and left others behind.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from . import mcplaunch
from .mcpguard import Guard, Said
from .mcpmessages import LONGEST, MOST_VALUES, is_crowded

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

    from ..config.servers import Server

_GRACE = 2.0
_LAST_WORDS = 1.0
_MOST_SAID = 2000
_POLL = 0.01
# Only Linux lets a process find all that it has started.
_HAS_LAUNCHER = sys.platform == "linux" and bool(sys.executable)


@asynccontextmanager
async def stdio(server: Server, said: Said) -> AsyncGenerator[Any, None]:
    """Start it; the streams of its messages.

    Raises:
        OSError: it cannot be started.
    """
    env = {**get_default_environment(), **server.env}
    _check_command(server.command[0], server.cwd, env)
    ear, mouth = os.pipe()
    try:
        with anyio.CancelScope(shield=True):  # a cancellation in between would leave a process that nobody knows
            process = await anyio.open_process(
                [*_launcher(ear), *server.command], env=env, cwd=server.cwd, start_new_session=True, pass_fds=[ear]
            )
    except BaseException:
        os.close(mouth)
        raise
    finally:
        os.close(ear)
    guard = Guard(said)
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - pipes are the default
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, into, said, guard)
            tasks.start_soon(_listen, process.stderr, said)
            tasks.start_soon(_write, process.stdin, out, into)
            try:
                yield guard.around(incoming, outgoing)
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for stream in (into, incoming, outgoing, out):
                stream.close()
            try:
                await _end(process, mouth)
            finally:
                os.close(mouth)


def _check_command(command: str, cwd: str | None, env: dict[str, str]) -> None:
    """What cannot be found is told before anything starts."""
    import errno
    import shutil

    in_a_directory = os.path.dirname(command)
    place = os.path.join(cwd or "", command) if in_a_directory else command
    if shutil.which(place, path=env.get("PATH", os.defpath)) is None:
        number = errno.EACCES if in_a_directory and os.path.isfile(place) else errno.ENOENT
        raise OSError(number, os.strerror(number), command)


def _launcher(ear: int) -> list[str]:
    return [sys.executable, "-I", "-S", mcplaunch.__file__, str(ear)] if _HAS_LAUNCHER else []


async def _read(pipe: ByteReceiveStream, into: Any, said: Said, guard: Guard) -> None:
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
                if not await _take(whole, into, said, guard):
                    return
            rest += tail
            if len(rest) > LONGEST:
                said.reason = f"it wrote a line of more than {LONGEST >> 20} MiB"
                return
            # A pipe that is always full gives nobody else a turn.
            await anyio.lowlevel.checkpoint()


async def _take(line: bytes, into: Any, said: Said, guard: Guard) -> bool:
    """Whether to read on."""
    if not line.strip():
        return guard.bears_more()
    if is_crowded(line):
        said.reason = f"it wrote a line with more than {MOST_VALUES} values"
        return False
    try:
        message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        # Banners and prints of a server that does not keep to the protocol; told when it fails.
        said.add(line[:_MOST_SAID] + b"\n")
        return guard.bears_more()
    await into.send(SessionMessage(message))
    return True


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


async def _end(process: Process, mouth: int) -> None:
    """As the protocol has it: close its input, wait; then ask it to end, wait; then kill all of it."""
    _tell(mouth, mcplaunch.GO)
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
        if _HAS_LAUNCHER:
            _tell(mouth, mcplaunch.KILL)
            await _ended(process)
        if not _HAS_LAUNCHER or process.returncode != 0:
            # If the server has killed the launcher, what is in its group can still be found.
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


def _tell(mouth: int, word: bytes) -> None:
    with suppress(OSError):
        os.write(mouth, word)


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
