"""Contexts: those of a sandbox, blocking; and a cell as it runs."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from typing import Self

from ..client.cells import AsyncCell
from ..client.contexts import MAIN, AsyncContexts
from ..io import drive
from ..types import Chunk, ContextInfo, Execution, Result
from .docs import documented_by


@documented_by(AsyncContexts)
class Contexts:
    def __init__(self, core: AsyncContexts) -> None:
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)

    def create(
        self,
        name: str | None = None,
        *,
        language: str = "python",
        workdir: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ContextInfo:
        return drive(self._core.create(name, language=language, workdir=workdir, env=env))

    def list(self) -> builtins.list[ContextInfo]:
        return drive(self._core.list())

    def restart(self, context: str | ContextInfo = MAIN) -> None:
        drive(self._core.restart(context))

    def interrupt(self, context: str | ContextInfo = MAIN) -> bool:
        return drive(self._core.interrupt(context))

    def delete(self, context: str | ContextInfo) -> None:
        drive(self._core.delete(context))


@documented_by(AsyncCell)
class Cell:
    def __init__(self, core: AsyncCell) -> None:
        self._core = core

    @property
    def execution(self) -> Execution | None:
        """How the cell ended, as `run_code` gives it; None until the last piece has been taken."""
        return self._core.execution

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk | Result:
        try:
            return drive(self._core.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self._core.close()
