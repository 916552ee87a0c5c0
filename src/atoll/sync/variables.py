"""Variables: the variables of a sandbox's Python contexts, blocking."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from ..client.variables import AsyncVariables
from ..io import drive
from ..types import Variable
from ..wire.values import MAX_SIZE
from .docs import documented_by


@documented_by(AsyncVariables)
class Variables:
    def __init__(self, core: AsyncVariables) -> None:
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core).replace("Async", "", 1)

    def get(self, name: str, context: str = "main", *, max_size: int | str = MAX_SIZE) -> Any:
        return drive(self._core.get(name, context, max_size=max_size))

    def set(self, name: str, value: Any, context: str = "main") -> None:
        drive(self._core.set(name, value, context))

    def update(self, values: Mapping[str, Any], context: str = "main") -> None:
        drive(self._core.update(values, context))

    def list(self, context: str = "main") -> builtins.list[Variable]:
        return drive(self._core.list(context))

    def clear(self, *names: str, context: str = "main") -> None:
        drive(self._core.clear(*names, context=context))
