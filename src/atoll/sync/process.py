"""Output, Process and Watch: what `Sandbox.stream`, `Sandbox.start` and `Files.watch` give."""

from __future__ import annotations

from typing import Self

from ..client.output import AsyncOutput
from ..client.process import AsyncProcess
from ..client.watch import AsyncWatch
from ..hints import PROCESS, elsewhere
from ..io import drive
from ..types import Chunk, Completed, FileEvent
from .docs import documented_by


@documented_by(AsyncOutput)
class Output:
    def __init__(self, core: AsyncOutput) -> None:
        self._core = core

    @property
    def result(self) -> Completed | None:
        """How the command ended, without its output; None until the last chunk has been taken."""
        return self._core.result

    def __enter__(self) -> Self:
        drive(self._core.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        try:
            return drive(self._core.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._core.close()


@elsewhere(PROCESS)
@documented_by(AsyncProcess)
class Process:
    def __init__(self, core: AsyncProcess) -> None:
        self._core = core

    @property
    def pid(self) -> int:
        """Its pid inside the sandbox; 0 when it could not be started, and `wait` says why."""
        return self._core.pid

    @property
    def exit_code(self) -> int | None:
        """None until its end has been seen by `read`, `wait` or iteration."""
        return self._core.exit_code

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)

    def write(self, data: str | bytes, timeout: float | None = None) -> None:
        drive(self._core.write(data, timeout))

    def close_stdin(self) -> None:
        drive(self._core.close_stdin())

    def resize(self, rows: int, columns: int) -> None:
        drive(self._core.resize(rows, columns))

    def signal(self, number: int | str) -> None:
        drive(self._core.signal(number))

    def kill(self) -> None:
        drive(self._core.kill())

    def read(self, timeout: float | None = None) -> Chunk | None:
        return drive(self._core.read(timeout))

    def wait(self, timeout: float | None = None) -> Completed:
        return drive(self._core.wait(timeout))

    def detach(self) -> None:
        self._core.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        drive(self._core.__aexit__(*exc))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        try:
            return drive(self._core.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


@documented_by(AsyncWatch)
class Watch:
    def __init__(self, core: AsyncWatch) -> None:
        self._core = core

    def read(self, timeout: float | None = None) -> FileEvent | None:
        return drive(self._core.read(timeout))

    def close(self) -> None:
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FileEvent:
        try:
            return drive(self._core.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
