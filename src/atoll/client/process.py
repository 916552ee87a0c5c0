"""A process that lives on its own: it survives who started it, and can be attached to again."""

from __future__ import annotations

import errno
from collections import deque
from time import monotonic
from typing import Any, Self

from ..errors import FileError, SandboxError, TimedOut
from ..hints import PROCESS, elsewhere
from ..io import IO
from ..types import Chunk, Completed
from ..wire.frames import Frame
from .command import MAX_OUTPUT, check_signal, terminal_size
from .feed import Feed
from .links import Links
from .operation import Closed, Operation
from .output import Chunks
from .running import Running, with_output

_KILL = 9
_END = 30.0


@elsewhere(PROCESS)
class AsyncProcess:
    """A started process. One thread or task may read from it while another writes to it.

    An interrupted call, by an error, a cancellation or Ctrl-C, detaches this object; the process goes on,
    and `attach(pid)` gives a new one. A `with` block kills the process at its end.
    """

    def __init__(self, io: IO, running: Running, pid: int) -> None:
        self._io = io
        self._running = running
        self._pid = pid
        self._chunks = Chunks()
        self._left: deque[Chunk] = deque()
        self._unread = _Unread()
        self._result: Completed | None = None

    @property
    def pid(self) -> int:
        """Its pid inside the sandbox; 0 when it could not be started, and `wait` says why."""
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """None until its end has been seen by `read`, `wait` or iteration."""
        return None if self._result is None else self._result.exit_code

    def __repr__(self) -> str:
        ended = self.exit_code
        return f"<{type(self).__name__} {self._pid}{'' if ended is None else f', ended with {ended}'}>"

    async def write(self, data: str | bytes, timeout: float | None = None) -> None:
        """Write to its standard input, waiting while it takes none.

        A process that waits for its output to be read takes no input: read from another thread or task.

        Raises:
            FileError: it has ended; errno is EPIPE.
            TimedOut: it did not take all of it in time; a part may be written.
        """
        feed = Feed(self._io, data)
        operation = self._operation()
        while piece := await feed.read(1 << 20):
            if operation.ended:
                raise FileError(f"Process {self._pid} has ended and takes no more input.", errno=errno.EPIPE)
            await operation.send(piece, timeout)

    async def close_stdin(self) -> None:
        """Let it see the end of its input."""
        await self._operation().eof()

    async def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size."""
        await self._operation().call(resize=terminal_size((rows, columns)))

    async def signal(self, number: int | str) -> None:
        """Send it a signal, by number or by a name such as "TERM". Nothing happens when it has ended."""
        await self._operation().call(signal=check_signal(number))

    async def kill(self) -> None:
        """Kill it and everything that it started. Nothing happens when it has ended."""
        await self._operation().call(signal=_KILL, tree=True)

    async def read(self, timeout: float | None = None) -> Chunk | None:
        """The next chunk of output, or None when it has ended.

        Raises:
            TimedOut: there was none in time; the process goes on.
        """
        while self._result is None:
            item = await self._next(timeout)
            if isinstance(item, Completed):
                self._result, self._left = item, self._chunks.finish()
            elif (chunk := self._chunks.feed(item)).text:
                return chunk
        return self._left.popleft() if self._left else None

    async def wait(self, timeout: float | None = None) -> Completed:
        """Wait for its end; the output that nobody has read is in the result, up to 16 MiB of it.

        Raises:
            TimedOut: it has not ended in time; it goes on, and so can a later `wait`.
        """
        deadline = None if timeout is None else monotonic() + timeout
        left = timeout
        while (chunk := await self.read(left)) is not None:
            self._unread.take(chunk)
            if deadline is not None:
                left = deadline - monotonic()
                if left <= 0:
                    raise TimedOut(f"Process {self._pid} has not ended within {timeout:g} s.")
        return self._unread.complete(self._ended())

    def _ended(self) -> Completed:
        if self._result is None:
            raise self._detached()
        return self._result

    async def _next(self, timeout: float | None) -> Frame | Completed:
        try:
            return await self._running.next(timeout)
        except Closed:
            raise self._detached() from None

    def _operation(self) -> Operation:
        operation = self._running.operation
        if operation.closed:
            raise self._detached()
        return operation

    def _detached(self) -> SandboxError:
        return SandboxError(
            f"This object is no longer attached to process {self._pid}.",
            hint=f"attach({self._pid}) gives a new one.",
        )

    def detach(self) -> None:
        """Let go of it. It lives on, and this object can do nothing more with it."""
        self._running.operation.close()

    def __del__(self) -> None:
        self.detach()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._result is None and not self._running.operation.closed:
            with self._io.shield(_END):
                await self.kill()
                await self.wait(_END)
        self.detach()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.read()
        if chunk is None:
            raise StopAsyncIteration
        return chunk


async def hold(links: Links, request: dict[str, Any]) -> AsyncProcess:
    """Start a process that lives on its own, or attach to one. Raises as the guest refuses it."""
    process = Running(await links.open(request), None, await links.hint(request))
    try:
        return AsyncProcess(links.io, process, await process.started())
    except BaseException:
        process.operation.close()
        raise


class _Unread:
    """Chunks that `wait` came across, up to a limit."""

    def __init__(self) -> None:
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._room = MAX_OUTPUT
        self._cut = False

    def take(self, chunk: Chunk) -> None:
        data = chunk.data
        self._cut |= len(data) > self._room
        data = data[: self._room]
        self._room -= len(data)
        self._kept[chunk.stream] += data

    def complete(self, ended: Completed) -> Completed:
        return with_output(ended, *self._kept.values(), cut=self._cut)
