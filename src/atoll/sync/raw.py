"""A command whose bytes pass unchanged, for pipes and terminals. The command line is made of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ..client import running
from ..client.command import Command, Timeout, terminal_size
from ..io import drive
from ..types import Completed
from .sandbox import Sandbox


class Piece(NamedTuple):
    """Output as it came. `stream` is 1 or 2; a terminal has only 1."""

    stream: int
    data: bytes


class RawCommand:
    """A running command. One thread may read while another writes; it dies with `close` and with this process.

    Raises:
        InvalidInput, SandboxGone, Busy: it could not be started.
        FileError: there is no such workdir.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        command: Command,
        *,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Timeout = "default",
    ) -> None:
        core = sandbox._core  # noqa: SLF001  # the other half of the same class
        request = core._exec(command, None, env, workdir, timeout, None, stdin=stdin)  # noqa: SLF001  # same
        if pty is not None:
            request["pty"] = terminal_size(pty)
        self.timeout: float | None = request["timeout"]
        self._running = drive(running.launch(core._links, request, None))  # noqa: SLF001  # same
        self._operation = self._running.operation

    def read(self) -> Piece | Completed:
        """The next piece of output, or at last how the command ended, without its output."""
        item = drive(self._running.next())
        return item if isinstance(item, Completed) else Piece(item.stream, item.payload)

    def write(self, data: bytes) -> None:
        """Write to its standard input, waiting while it takes none. After its end nothing happens."""
        drive(self._operation.send(data))

    def close_stdin(self) -> None:
        drive(self._operation.eof())

    def resize(self, rows: int, columns: int) -> None:
        drive(self._operation.call(resize=terminal_size((rows, columns))))

    def close(self) -> None:
        """Kill it with all that it started, unless it has ended."""
        self._operation.close()
