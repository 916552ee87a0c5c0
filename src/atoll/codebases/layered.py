"""Snapshots, rules and reviews of sandboxes that stand on layers; see `engine.restack`."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ..driver import Driver, Staged
from ..engine import orders
from ..engine.layout import Layout
from ..errors import AtollError, SnapshotNotFound
from ..types import Handle, Permissions

_MOST_LAYERS = 200
# How long a review waits until it is written down how the source was at first: without that it must be more careful.
_RECORDING, _LOOK = 3.0, 0.01


class LayeredHistory(Driver):
    """Part of a driver whose keepers know the operations `restack` and `stage`."""

    @abstractmethod
    def places(self, handle: Handle | None = None) -> Layout:
        """Where its sandboxes are kept; or where one of them is, which may have been made in another directory."""

    @abstractmethod
    async def _ask(self, handle: Handle, request: dict[str, Any], *, fds: int = 1) -> tuple[dict[str, Any], list[int]]:
        """One question to a keeper; see the drivers."""

    async def snapshot(self, handle: Handle, name: str, facts: Mapping[str, Any], *, force: bool) -> Mapping[str, Any]:
        kept = {**facts, "codebase": handle.data.get("codebase")}
        request = {"op": "restack", "kind": "push", "force": force, "name": name, "facts": kept}
        if not kept["codebase"]:
            await self._ask(handle, request)
            return await self.find_snapshot(name)
        from . import uses

        # Each try has a pin of its own: another one may have the name.
        pin = f"snapshot-{name}.{os.urandom(4).hex()}"
        kept["pin"] = pin
        uses.pin(handle.data, pin)
        try:
            await self._ask(handle, request)
        except AtollError:
            uses.unpin(handle.data, pin)
            raise
        return await self.find_snapshot(name)

    async def snapshots(self) -> list[Mapping[str, Any]]:
        from ..engine import history

        return await self.io.in_thread(lambda: history.manifests(self.places()))

    async def find_snapshot(self, name: str) -> Mapping[str, Any]:
        from ..engine import history

        found = history.manifest(self.places(), name)
        if found is None:
            raise SnapshotNotFound(f"No snapshot has the name {name!r}.", hint="`atoll snapshot list` shows them.")
        return found

    async def delete_snapshot(self, name: str) -> None:
        from ..engine import history

        manifest = await self.find_snapshot(name)
        await self.io.in_thread(lambda: history.delete(self.places(), name))
        if manifest.get("codebase"):
            from . import uses

            uses.unpin(manifest, str(manifest.get("pin")))

    async def export_snapshot(self, name: str, path: str) -> None:
        from . import portable

        found = await self.find_snapshot(name)
        await self.io.in_thread(lambda: portable.export(self.places(), found, path))

    async def import_snapshot(self, path: str, name: str | None, *, limit: int) -> Mapping[str, Any]:
        from . import portable

        made = await self.io.in_thread(lambda: portable.import_(self.places(), path, name, limit))
        return await self.find_snapshot(made)

    async def rollback(self, handle: Handle, name: str) -> None:
        stack = (await self.find_snapshot(name))["stack"]
        await self._ask(handle, {"op": "restack", "kind": "replace", "stack": stack})

    async def stage(self, handle: Handle) -> Staged:
        until = time.monotonic() + _RECORDING
        while True:
            patient = time.monotonic() < until
            answer, fds = await self._ask(handle, {"op": "stage", "patient": patient}, fds=_MOST_LAYERS)
            if fds:
                break
            await self.io.sleep(_LOOK)
        base = f"{self.places(handle).box(handle.id)}/base"
        return Staged(fds[0], tuple(fds[1:]), answer["source"], base)

    async def discard(self, handle: Handle, *, force: bool) -> None:
        await self._ask(handle, {"op": "restack", "kind": "discard", "force": force})

    async def set_permissions(
        self, handle: Handle, permissions: Permissions | None, ignore: Sequence[str], *, force: bool
    ) -> str | None:
        rules = orders.rules(permissions)
        request = {"op": "restack", "kind": "rules", "force": force, "permissions": rules, "ignore": list(ignore)}
        answer, _ = await self._ask(handle, request)
        recipe: str | None = answer["view"]
        return recipe
