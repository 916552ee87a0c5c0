"""The client's side of what a container may do with its source."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.steward.staged import Stages
from ..types import Handle, Permissions
from .docker_sources import DISCARD, RULES

_BUILDING = 600.0


class Reviewed(Stages):
    """Part of `DockerDriver`."""

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
