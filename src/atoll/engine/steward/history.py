"""Snapshots, rollbacks and forks for every wall that a steward keeps: copies of its files.

A wall whose files can be put aside in a better way has its own. Here the sandbox stands still while they are copied,
which takes as long as there is much of them, unless the file system shares blocks between copies.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ...driver import Register
from ...home import state_dir
from ...types import Handle, Spec
from .client import COPYING, StewardDriver
from .shelf import Draft, Shelf

_SHELF = ".snapshots"
_CLEAN_UP = 600.0


class CopiedHistory(StewardDriver):
    """A `StewardDriver` that may declare SNAPSHOT and FORK."""

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        if spec.snapshot is None or resume is not None:
            return await super().create(spec, register, resume)
        with self._shelf().used(spec.snapshot) as (files, manifest):
            begin = {"files": files, "uid": manifest.get("uid"), "codebase": manifest.get("codebase")}
            return await self._make(spec, register, None, begin)

    async def snapshot(self, handle: Handle, name: str, facts: Mapping[str, Any], *, force: bool) -> Mapping[str, Any]:
        shelf = self._shelf()
        shelf.check_free(name)
        async with self._copied(handle, force=force) as (draft, size):
            manifest = {**facts, "size": size, "layers": [], "uid": handle.data.get("uid")}
            shelf.publish(draft, name, manifest)
        return await self.find_snapshot(name)

    @contextlib.asynccontextmanager
    async def _copied(self, handle: Handle, *, force: bool) -> AsyncIterator[tuple[Draft, int]]:
        """Its files as they are now, and how many bytes they take; gone afterwards, unless they were published."""
        draft = await self.io.in_thread(lambda: self._shelf().draft())
        try:
            answer, _ = await self._ask(handle, {"op": "copy", "into": draft.files, "force": force}, COPYING)
            yield draft, int(answer["size"])
        finally:
            with self.io.shield(_CLEAN_UP):
                await self.io.in_thread(draft.close)

    async def snapshots(self) -> list[Mapping[str, Any]]:
        return list(await self.io.in_thread(lambda: self._shelf().all()))

    async def find_snapshot(self, name: str) -> Mapping[str, Any]:
        return self._shelf().find(name)

    async def delete_snapshot(self, name: str) -> None:
        await self.io.in_thread(lambda: self._shelf().delete(name))

    async def rollback(self, handle: Handle, name: str) -> None:
        with self._shelf().used(name) as (files, _):
            await self._ask(handle, {"op": "rollback", "from": files}, COPYING)

    async def fork(
        self, handle: Handle, spec: Spec, count: int, register: Register, *, wait: float, force: bool
    ) -> list[Handle]:
        """One copy, which all twins begin with: their parent stands still no longer than for that."""
        # What a twin's files are is decided, whatever the source is now.
        twin = spec._replace(snapshot=f"fork-of-{handle.id}")
        async with self._copied(handle, force=force) as (draft, _):
            begin = {**handle.data, "files": draft.files}
            return [await self._make(twin, register, None, begin) for _ in range(count)]

    def _shelf(self) -> Shelf:
        return Shelf(os.path.join(state_dir(), self.name, _SHELF))
