"""What was refused to a sandbox: noted where it is seen, and listed.

The file API and the review gate see their refusals themselves and note them in the registry, where every process can
read them. What the kernel refuses to the code inside, it tells root alone; see `engine.denials`.
"""

from __future__ import annotations

import builtins
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import InvalidInput, SandboxNotFound
from ..policy.text import shown
from ..types import Denial

if TYPE_CHECKING:
    from .record import Record

Source = Literal["files", "gate", "kernel"]
SOURCES: tuple[Source, ...] = get_args(Source)


class Denials(builtins.list[Denial]):
    """A list of `Denial`, oldest first. `dropped` counts those that came too fast or are too old to be in it."""

    dropped: int = 0


class AsyncAudited:
    """Part of `AsyncSandbox`."""

    _record: Record

    async def audit(self, *, since: float | None = None, source: Source | None = None) -> Denials:
        """Which accesses were refused, oldest first, whichever process asked for them.

        Those of the file API and of the review gate are always there. What the kernel refuses to the code inside is
        there if `info.audit` names the source "kernel". Paths are relative to the workspace, absolute elsewhere; what
        is told of processes inside, they have told of themselves.

        Args:
            since: only those from this moment on, as `time.time()` gives it.
            source: only those that "files", "gate" or "kernel" has noticed.

        Raises:
            SandboxGone: it has ended, and the list with it.
        """
        return await audit(self._record, since, source)


async def audit(record: Record, since: object, source: object) -> Denials:
    """Raises as `AsyncSandbox.audit` says, and InvalidInput."""
    moment = _moment(since)
    if source is not None and source not in SOURCES:
        raise InvalidInput(f"source is {shown(source)}; give one of {', '.join(SOURCES)}.")
    try:
        found, dropped = record.store.denials(record.id, moment)
    except SandboxNotFound:
        raise record.gone() from None
    if source in (None, "kernel") and "kernel" in record.info.audit:
        told, lost = await record.driver.denials(record.handle)
        found += [each for each in told if each.time >= moment]
        dropped += lost
    chosen = Denials(each for each in found if source in (None, each.source))
    chosen.sort(key=lambda each: each.time)
    chosen.dropped = dropped
    return chosen


def note(record: Record, source: Source, operation: str, paths: Iterable[str]) -> None:
    """Keep that `operation` was refused on each of `paths`, which are relative to the workspace.

    Raises:
        StoreError: the registry cannot be written.
    """
    now = time.time()
    refused = [Denial(now, path, operation, source) for path in paths]
    if refused:
        record.store.note_denials(record.id, refused)


def _moment(since: object) -> float:
    if since is None:
        return 0.0
    if isinstance(since, bool) or not isinstance(since, int | float) or not math.isfinite(since):
        raise InvalidInput(f"since is {shown(since)}; give a moment in seconds, as time.time() does.")
    return float(since)
