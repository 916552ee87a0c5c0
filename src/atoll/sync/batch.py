"""Several commands of a Sandbox, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..client.batch import AsyncBatch
from ..client.command import MAX_OUTPUT, Command, Timeout
from ..io import drive
from ..types import Completed
from .docs import documented_by

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox


@documented_by(AsyncBatch)
class Batch:
    """Part of `Sandbox`."""

    _core: AsyncSandbox

    def run_many(
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
        return drive(
            self._core.run_many(
                commands, shell=shell, env=env, workdir=workdir, timeout=timeout, check=check, max_output=max_output
            )
        )
