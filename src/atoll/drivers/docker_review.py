"""The client's side of what a container may do with its source."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..driver import Staged
from ..engine.steward.client import StewardDriver
from ..types import Handle, Permissions
from .docker_sources import DISCARD, RULES, STAGE

# How long a review waits until it is written down how the source was at first: without that it must be more careful.
_RECORDING, _LOOK = 3.0, 0.01
_MOST_LAYERS = 200
_BUILDING = 600.0


class Reviewed(StewardDriver):
    """Part of `DockerDriver`."""

    async def stage(self, handle: Handle) -> Staged:
        until = time.monotonic() + _RECORDING
        while True:
            patient = time.monotonic() < until
            answer, fds = await self._ask(handle, {"op": STAGE, "patient": patient}, fds=_MOST_LAYERS)
            if fds:
                return Staged(fds[0], tuple(fds[1:]), answer["source"], answer["base"])
            await self.io.sleep(_LOOK)

    async def discard(self, handle: Handle, *, force: bool) -> None:
        await self._ask(handle, {"op": DISCARD, "force": force}, _BUILDING)

    async def set_permissions(
        self, handle: Handle, permissions: Permissions | None, ignore: Sequence[str], *, force: bool
    ) -> str | None:
        from ..policy.permissions import to_json

        rules = None if permissions is None else to_json(permissions)
        request = {"op": RULES, "permissions": rules, "ignore": list(ignore), "force": force}
        answer, _ = await self._ask(handle, request, _BUILDING)
        recipe: str | None = answer["view"]
        return recipe
