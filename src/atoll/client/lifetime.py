"""How long an AsyncSandbox lives, and what it is doing meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..types import Capability, Checkpoint, Info, Metrics

if TYPE_CHECKING:
    from .command import Seconds
    from .links import Links
    from .record import Record


class AsyncLifetime:
    """Part of `AsyncSandbox`."""

    _record: Record
    _links: Links

    async def refresh(self) -> Info:
        """Ask the driver how it stands; the answer is `info` from then on."""
        return await self._record.refresh()

    async def metrics(self) -> Metrics:
        """What it uses now, measured from outside the wall."""
        return await self._record.metrics()

    async def set_lifetime(self, seconds: Seconds) -> None:
        """Let it live for so many seconds from now; a `timedelta` or text such as "5m" will do."""
        await self._record.set_lifetime(seconds)

    async def set_timeout(self, seconds: Seconds | None) -> None:
        """Give commands and cells that ask for no other so many seconds from now on; None is without end.

        Who finds it afterwards, in this or another process, finds it so. Sessions that are open keep what they had.
        """
        await self._record.set_timeout(seconds)

    async def pause(self) -> None:
        """Freeze all that runs in it. Its lifetime goes on."""
        await self._record.pause()

    async def resume(self) -> None:
        """Wake a paused one, or start a stopped one with its files and a fresh lifetime."""
        await self._record.resume()

    async def checkpoint(self, *, wait: float = 30.0) -> Checkpoint:
        """Keep the variables of every Python context. Should this machine crash, `resume` brings back the last ones.

        Imports, functions, classes, the working directory and changes of the environment are kept too. A value that
        cannot be saved, such as an open file, is skipped and named in `lost` with the reason; the rest is kept.

        Args:
            wait: seconds to wait for cells that run.

        Raises:
            Busy: a cell still runs, or keeping took too long; the last checkpoint stays.
            DiskFull: the sandbox has no room for it; the last checkpoint stays.
            Unsupported: the driver cannot keep a sandbox beyond its end.
        """
        from . import lasting

        await self._record.demand(Capability.STOP)
        await self._record.check_usable()
        memory = self._record.info.spec.resources.memory
        kept = await lasting.checkpoint(self._links, lasting.check_wait(wait), memory)
        await self._record.keep()
        return kept

    async def stop(self, *, wait: float = 30.0) -> Checkpoint:
        """End all that runs in it, and keep its files and the variables of its Python contexts for `resume`.

        It stops in any case: what could not be kept is named, as `checkpoint` does. After `wait` seconds a context
        whose cell still runs keeps what it had at its last checkpoint.
        """
        from . import lasting

        kept = await lasting.before_stop(self._record, self._links, lasting.check_wait(wait))
        await self._record.stop()
        self._links.drop()
        return kept

    async def destroy(self) -> None:
        """End it and remove everything of it. Doing so twice is harmless."""
        self._links.drop()
        await self._record.destroy()
