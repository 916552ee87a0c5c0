"""What a sandbox has changed of its source, and what becomes of that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from ..driver import Staged
from ..errors import Busy, InvalidInput
from ..home import private, state_dir
from ..policy.text import shown
from ..types import Applied, Capability, Change
from . import auditing
from .record import Record

OnConflict = Literal["ask", "keep", "take"]
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
T = TypeVar("T")

_CHOICES = ("ask", "keep", "take")
_TRIES = 20


async def diff(record: Record, paths: Paths, *, text: bool) -> list[Change]:
    """Raises as `AsyncSandbox.diff` says."""
    from .. import review

    chosen = check_paths(record, paths)

    def work(stage: Any) -> list[Change]:
        if record.info.spec.codebase is None:
            return review.changes(stage, text=text, paths=chosen)
        with _as_codebase(record, stage) as current:
            return review.changes(current, text=text, paths=chosen)

    async with _staged(record) as stage:
        return await record.driver.io.in_thread(lambda: work(stage))


async def apply(
    record: Record,
    paths: Paths,
    on_conflict: OnConflict,
    reviewed: Sequence[Change] | None,
    *,
    new_hidden: bool = False,
) -> Applied:
    """Raises as `AsyncSandbox.apply` says."""
    from .. import review

    chosen = check_paths(record, paths)
    if on_conflict not in _CHOICES:
        raise InvalidInput(f"on_conflict is {shown(on_conflict)}; give 'ask', 'keep' or 'take'.")

    def work(stage: Any) -> Applied:
        applied = review.apply(stage, chosen, on_conflict, reviewed, new_hidden=new_hidden)
        auditing.note(record, "gate", "apply", applied.rejected)
        return applied

    async with _staged(record) as stage:
        return await record.driver.io.in_thread(lambda: _bring(record, stage, work))


def _bring(record: Record, stage: Any, work: Callable[[Any], Applied]) -> Applied:
    if record.info.spec.codebase is None:
        return work(stage)
    with _as_codebase(record, stage) as current:
        return _to_codebase(record, current, work)


def _to_codebase(record: Record, stage: Any, work: Callable[[Any], Applied]) -> Applied:
    """The changes become the next version of the codebase; those who use the one before keep it."""
    from .. import review
    from ..codebases.shelf import Shelf
    from ..codebases.stage import MovedOn

    shelf = Shelf()
    # Files that are changed in place, such as in their mode, must be no other version's.
    touched = [each.path for each in review.changes(stage, text=False)]
    for _ in range(_TRIES):
        with shelf.stage_version(record.handle.data["codebase"]["id"], touched) as draft, _copied(stage.base) as base:
            applied = work(stage._replace(source=draft.path, base=base))
            try:
                if applied.applied:
                    draft.commit(draft.version)
                    os.replace(f"{base}.applied", f"{stage.base}.applied")
            except MovedOn:
                continue  # somebody else was faster, and what they did may be in conflict with this
            return applied
    raise Busy(f"Others changed the codebase {_TRIES} times while this was being applied.")


@contextlib.contextmanager
def _copied(base: str) -> Iterator[str]:
    """A record that counts only if what is written to it comes true."""
    path = f"{base}.{os.urandom(8).hex()}"
    try:
        os.link(base, path)
        with contextlib.suppress(FileNotFoundError), open(f"{base}.applied", "rb") as file:
            data = file.read()
            with open(f"{path}.applied", "wb", opener=private) as copy:
                copy.write(data)
        yield path
    finally:
        for name in (path, f"{path}.applied"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


@contextlib.contextmanager
def _as_codebase(record: Record, stage: Any) -> Iterator[Any]:
    """What the codebase is now, beside what its version was that the sandbox began with."""
    from ..codebases.shelf import Shelf

    shelf = Shelf()
    began = record.handle.data["codebase"]
    base = f"{stage.base}.codebase"
    if not os.path.exists(base):
        draft = f"{base}.{os.urandom(8).hex()}"
        _write_base(draft, shelf.entries(began["id"], int(began["version"])))
        os.rename(draft, base)
    use = shelf.use(began["id"])
    try:
        yield stage._replace(source=use.tree, base=base, started=None)
    finally:
        os.close(use.descriptor)


def _write_base(path: str, entries: Mapping[str, Any]) -> None:
    """How the version was that the sandbox began with: by content alone, since a version is a tree of its own."""
    import hashlib

    from ..review.base import Record as Known, write_base

    def digest(entry: Any) -> str | None:
        if entry.kind == "symlink":
            return hashlib.sha256(os.fsencode(entry.content)).hexdigest()
        return entry.content if entry.kind == "file" else None

    write_base(
        path,
        ((name, Known(each.kind, each.mode, each.size, 0, 0, 0, digest(each))) for name, each in entries.items()),
    )


async def discard(record: Record, *, force: bool) -> None:
    """Raises as `AsyncSandbox.discard` says."""
    await _require(record)
    await record.check_usable(afresh=True)
    await record.driver.discard(record.handle, force=force)


@contextlib.asynccontextmanager
async def _staged(record: Record) -> AsyncIterator[Any]:
    from .. import review

    await _require(record)
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
            staged.base,
            state,
            int(record.info.created * 1e9),
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


async def _require(record: Record) -> None:
    await record.demand(Capability.REVIEW)
    spec = record.info.spec
    if spec.source is None and spec.codebase is None:
        raise InvalidInput(
            "This sandbox was made without a source, so there is nothing to compare its files with.",
            hint="Give source= or codebase= to create.",
        )
