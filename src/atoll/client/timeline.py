"""What an AsyncSandbox does with its own past and with its twins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, overload

from ..types import Snapshot

if TYPE_CHECKING:
    from .links import Links
    from .record import Record
    from .tools import Tools


class AsyncTimeline:
    """Part of `AsyncSandbox`."""

    _record: Record
    _links: Links
    _tools: Tools | None

    async def snapshot(self, name: str | None = None, *, wait: float = 2.0, force: bool = False) -> Snapshot:
        """Keep its files and the variables of its Python contexts as they are now, under a name.

        `AsyncSandbox.create(snapshot=name)` begins there, `rollback(name)` goes back there. It takes milliseconds,
        however much there is; what runs goes on and notices nothing.

        Args:
            name: one is made up unless given.
            wait: seconds to wait for cells that run. The variables of a context whose cell runs on are those of its
                last checkpoint, and it is named in `lost`.
            force: end processes that have a file open to write to, rather than to refuse.

        Raises:
            InvalidInput: there is a snapshot of that name.
            Busy: a process has a file open to write to; the message names both.
            Unsupported: the driver has no snapshots.
        """
        from . import history

        return await history.snapshot(self._record, self._links, name, wait, force=force)

    async def rollback(self, name: str) -> None:
        """Have files and variables as in one of its own snapshots. All that runs in it ends.

        Raises:
            SnapshotNotFound: there is none of that name.
            InvalidInput: it is a snapshot of another sandbox.
        """
        from . import history

        await history.rollback(self._record, self._links, name)

    @overload
    async def fork(
        self,
        n: None = None,
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: float | None = None,
        wait: float = 30.0,
        force: bool = False,
        live: bool = False,
    ) -> Self: ...
    @overload
    async def fork(
        self,
        n: int,
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: float | None = None,
        wait: float = 30.0,
        force: bool = False,
        live: bool = False,
    ) -> list[Self]: ...
    async def fork(
        self,
        n: int | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        lifetime: float | None = None,
        wait: float = 30.0,
        force: bool = False,
        live: bool = False,
    ) -> Self | list[Self]:
        """A twin that goes on where this one is, with its files and Python variables; or `n` of them in a list.

        What one writes from then on, to files or variables, no other sees. The variables are written once, as for
        `checkpoint`, whatever `n` is. What that cannot carry is named in `info.lost` of each twin: commands, sessions,
        threads and child processes that run, and variables that cannot be pickled, such as generators, sockets and
        open files.

        Args:
            labels, lifetime: of the twins; those of this one unless given.
            wait: seconds to wait for cells that run.
            force: end processes that have a file open to write to, rather than to refuse.
            live: take all that runs as it is in memory. No wall of this version can; `microvm` is to be the one.

        Raises:
            Busy: a cell still runs, or a process has a file open to write to; the message names it.
            DiskFull: the sandbox's disk has no room for the variables.
            Unsupported: the driver cannot fork, or not live.
        """
        from . import history

        count = 1 if n is None else history.check_count(n)
        records = await history.fork(
            self._record, self._links, count, wait, labels=labels, lifetime=lifetime, force=force, live=live
        )
        twins = [self._twin(record) for record in records]
        return twins[0] if n is None else twins

    def _twin(self, record: Any) -> Self:
        return type(self)(record, self._tools)  # type: ignore[call-arg]  # the sandbox that this is a part of takes them
