"""What runs in an AsyncSandbox."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..hints import hinting
from ..types import ProcessInfo
from . import answers
from .command import check_pid, check_signal

if TYPE_CHECKING:
    from .links import Links
    from .process import AsyncProcess


class AsyncProcesses:
    """Part of `AsyncSandbox`."""

    _links: Links

    async def attach(self, pid: int) -> AsyncProcess:
        """A process that `start` made, from here or from another process, with the output nobody has read."""
        from .process import hold

        return await hold(self._links, {"op": "attach", "pid": check_pid(pid)})

    async def processes(self) -> builtins.list[ProcessInfo]:
        """What runs in it."""
        answer = await self._links.ask("processes")
        return [answers.process_info(item) for item in answers.items(answer, "processes")]

    @hinting
    async def signal(self, pid: int, number: int | str, *, tree: bool = False) -> None:
        """Send a signal, a number or a name such as "TERM", to a process, and with `tree` to all that it started."""
        await self._links.ask("signal", pid=check_pid(pid), signal=check_signal(number), tree=tree)
