"""The client's side of what a sandbox behind gVisor may do with its source, and of its snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codebases.standing import Standing, pinned
from ..engine.removal import remove_tree
from ..engine.steward.client import COPYING
from ..engine.steward.covering import uppers_in
from ..engine.steward.history import CopiedHistory
from ..engine.steward.staged import Stages
from ..types import Handle
from .gvisor_source import IDLE, begin_afresh


class Reviewed(CopiedHistory, Standing, Stages):
    """Part of `GVisorDriver`."""

    async def discard(self, handle: Handle, *, force: bool) -> None:
        """As a rollback to its own files without what it has changed, since nothing can be exchanged under gVisor."""
        await self._ask(handle, {"op": IDLE, "force": force})
        async with self._copied(handle, force=force) as (draft, _):
            await self.io.in_thread(lambda: _without_changes(draft.files))
            await self._ask(handle, {"op": "rollback", "from": draft.files}, COPYING)

    async def snapshot(self, handle: Handle, name: str, facts: Mapping[str, Any], *, force: bool) -> Mapping[str, Any]:
        manifest = {**facts, "name": name}
        with pinned(handle, manifest):
            return await super().snapshot(handle, name, manifest, force=force)

    async def delete_snapshot(self, name: str) -> None:
        manifest = await self.find_snapshot(name)
        await super().delete_snapshot(name)
        if manifest.get("codebase"):
            from ..codebases import uses

            uses.unpin(manifest, str(manifest.get("pin")))


def _without_changes(files: str) -> None:
    for name in uppers_in(files):
        remove_tree(f"{files}/{name}")
    begin_afresh(files)
