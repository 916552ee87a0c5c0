"""What a sandbox has changed of its source, and what becomes of that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from ..driver import Staged
from ..errors import InvalidInput, Unsupported
from ..home import state_dir
from ..policy.text import shown
from ..types import Applied, Capability, Change
from .record import Record

OnConflict = Literal["ask", "keep", "take"]
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
T = TypeVar("T")

_CHOICES = ("ask", "keep", "take")


async def diff(record: Record, paths: Paths, *, text: bool) -> list[Change]:
    """Raises as `AsyncSandbox.diff` says."""
    from .. import review

    chosen = check_paths(record, paths)
    async with _staged(record) as stage:
        return await record.driver.io.in_thread(lambda: review.changes(stage, text=text, paths=chosen))


async def apply(record: Record, paths: Paths, on_conflict: OnConflict, reviewed: Sequence[Change] | None) -> Applied:
    """Raises as `AsyncSandbox.apply` says."""
    from .. import review

    chosen = check_paths(record, paths)
    if on_conflict not in _CHOICES:
        raise InvalidInput(f"on_conflict is {shown(on_conflict)}; give 'ask', 'keep' or 'take'.")

    def work(stage: Any) -> Applied:
        return review.apply(stage, chosen, on_conflict, reviewed)

    async with _staged(record) as stage:
        if record.info.spec.codebase is None:
            return await record.driver.io.in_thread(lambda: work(stage))
        return await record.driver.io.in_thread(lambda: _to_codebase(record, stage, work))


def _to_codebase(record: Record, stage: Any, work: Callable[[Any], Applied]) -> Applied:
    """The changes become the next version of the codebase; those who use the one before keep it."""
    from ..codebases import staging

    with staging.stage_version(state_dir(), str(record.info.spec.codebase)) as draft:
        applied = work(stage._replace(source=draft.tree))
        if applied.applied:
            draft.commit()
        return applied


async def discard(record: Record, *, force: bool) -> None:
    """Raises as `AsyncSandbox.discard` says."""
    _require(record)
    await record.check_usable(afresh=True)
    await record.driver.discard(record.handle, force=force)


@contextlib.asynccontextmanager
async def _staged(record: Record) -> AsyncIterator[Any]:
    from .. import review

    _require(record)
    await record.check_usable(afresh=True)
    staged: Staged = await record.driver.stage(record.handle)
    spec = record.info.spec
    state = os.path.join(state_dir(), "reviews")
    os.makedirs(state, mode=0o700, exist_ok=True)
    try:
        yield review.Stage(
            staged.merged,
            staged.uppers,
            staged.source,
            spec.permissions,
            spec.ignore,
            staged.base if os.path.exists(staged.base) else None,
            state,
        )
    finally:
        for fd in (staged.merged, *staged.uppers):
            os.close(fd)


def check_paths(record: Record, paths: Paths) -> list[str] | None:
    """Paths of the workspace, as rules see them. Raises InvalidInput."""
    if paths is None:
        return None
    from .permitting import relative

    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return [relative(record.info.spec, os.fspath(path)) for path in given]


def _require(record: Record) -> None:
    if Capability.REVIEW not in record.driver.capabilities:
        raise Unsupported(f"The {record.driver.name} driver cannot show changes.")
    spec = record.info.spec
    if spec.source is None and spec.codebase is None:
        raise InvalidInput(
            "This sandbox was made without a source, so there is nothing to compare its files with.",
            hint="Give source= or codebase= to create.",
        )
