"""Several commands of an AsyncSandbox, one after the other."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..types import Completed
from .command import MAX_OUTPUT, Command, Timeout, several


class AsyncBatch:
    """Part of `AsyncSandbox`."""

    run: Callable[..., Awaitable[Completed]]

    async def run_many(
        self,
        commands: Iterable[Command],
        *,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Timeout = "default",
        check: bool = False,
        max_output: int = MAX_OUTPUT,
    ) -> list[Completed]:
        """Run commands one after the other, each to its end; the arguments are those of `run`, for each of them.

        A command that fails is data, and the next one runs; with `check` it is the last.

        Raises:
            CommandFailed: `check` was asked for, and a command failed; `CommandTimedOut` where its time was over.
        """
        surroundings: dict[str, Any] = {
            "shell": shell,
            "env": env,
            "workdir": workdir,
            "timeout": timeout,
            "max_output": max_output,
        }
        return [await self.run(command, check=check, **surroundings) for command in several(commands)]
