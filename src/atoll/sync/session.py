"""Session: what `Sandbox.session` gives."""

from __future__ import annotations

from typing import Self

from ..client.command import MAX_OUTPUT, Timeout
from ..client.running import Listener
from ..client.session import AsyncSession
from ..hints import SESSION, elsewhere
from ..io import drive
from ..types import Completed
from .docs import documented_by
from .process import Output


@elsewhere(SESSION)
@documented_by(AsyncSession)
class Session:
    def __init__(self, core: AsyncSession) -> None:
        self._core = core

    @property
    def id(self) -> str:
        """What `session(id=...)` finds it by again, from here or from another process."""
        return self._core.id

    @property
    def shell(self) -> str:
        """The shell's name."""
        return self._core.shell

    def run(
        self,
        command: str,
        *,
        timeout: Timeout = "default",
        check: bool = False,
        max_output: int = MAX_OUTPUT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> Completed:
        return drive(
            self._core.run(
                command, timeout=timeout, check=check, max_output=max_output, on_stdout=on_stdout, on_stderr=on_stderr
            )
        )

    def stream(self, command: str, *, timeout: Timeout = "default", max_output: int | None = None) -> Output:
        return Output(self._core.stream(command, timeout=timeout, max_output=max_output))

    def interrupt(self) -> bool:
        return drive(self._core.interrupt())

    def close(self) -> None:
        drive(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)
