"""What runs in a Sandbox."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..client.processes import AsyncProcesses
from ..hints import hinting
from ..io import drive
from ..types import ProcessInfo
from .docs import documented_by

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox
    from .process import Process


@documented_by(AsyncProcesses)
class Processes:
    """Part of `Sandbox`."""

    _core: AsyncSandbox

    def attach(self, pid: int) -> Process:
        from .process import Process

        return Process(drive(self._core.attach(pid)))

    def processes(self) -> builtins.list[ProcessInfo]:
        return drive(self._core.processes())

    @hinting
    def signal(self, pid: int, number: int | str, *, tree: bool = False) -> None:
        drive(self._core.signal(pid, number, tree=tree))
