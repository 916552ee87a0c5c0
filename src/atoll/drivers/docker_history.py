"""Snapshots of containers' files as images of the engine: committed, labelled, and gone with `docker rmi`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..driver import Register
from ..engine import disk
from ..engine.limits import DEFAULT_DISK
from ..engine.steward.client import COPYING
from ..engine.steward.history import CopiedHistory
from ..engine.steward.shelf import Draft
from ..types import Handle, Spec
from . import docker_finding, docker_snapshots
from .docker_engine import Engine
from .docker_pool import Pooled

REPOSITORY = "atoll-snapshot"
_INSIDE = ".atoll"
_CLEAN_UP = 600.0


class CommittedHistory(CopiedHistory, Pooled):
    """Part of `DockerDriver`. The files are copied while the sandbox stands still, and made an image of afterwards."""

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        if spec.snapshot is None or resume is not None:
            ahead = await self._adopt(spec, register) if resume is None else None
            return ahead or await self._make(spec, register, resume)
        size = spec.resources.disk or DEFAULT_DISK
        async with self._fetched(spec.snapshot, size) as (files, owner):
            return await self._make(spec, register, None, {"files": files, "uid": owner})

    async def snapshot(self, handle: Handle, name: str, facts: Mapping[str, Any], *, force: bool) -> Mapping[str, Any]:
        engine = Engine(str(handle.data["engine"]))
        await self.io.in_thread(lambda: docker_snapshots.check_free(engine, name))
        async with self._copied(handle, force=force) as (draft, _):
            # Who may look at images is not who may know what is in a sandbox's environment.
            manifest = {**facts, "name": name, "spec": {**facts["spec"], "env": {}}}
            await self.io.in_thread(lambda: _commit(engine, draft, str(handle.data["image"]), manifest))
        return await self.io.in_thread(lambda: docker_snapshots.find(engine, name))

    async def snapshots(self) -> list[Mapping[str, Any]]:
        return await self.io.in_thread(docker_snapshots.listing)

    async def find_snapshot(self, name: str) -> Mapping[str, Any]:
        return await self.io.in_thread(lambda: docker_snapshots.find(docker_finding.engine(), name))

    async def delete_snapshot(self, name: str) -> None:
        await self.io.in_thread(lambda: docker_snapshots.delete(docker_finding.engine(), name))

    async def rollback(self, handle: Handle, name: str) -> None:
        async with self._fetched(name, handle.data.get("disk")) as (files, _):
            await self._ask(handle, {"op": "rollback", "from": files}, COPYING)

    @contextlib.asynccontextmanager
    async def _fetched(self, name: str, size: int | None) -> AsyncIterator[tuple[str, int | None]]:
        """A directory of the files of a snapshot, for as long as the block lasts, and whose they are."""
        draft = await self.io.in_thread(lambda: self._shelf().draft())
        try:
            held = os.geteuid() == 0 and disk.available()
            owner = await self.io.in_thread(lambda: _fetch(name, draft, size if held else None))
            yield draft.files, owner
        finally:
            with self.io.shield(_CLEAN_UP):
                await self.io.in_thread(draft.close)


def _commit(engine: Engine, draft: Draft, image: str, manifest: dict[str, Any]) -> None:
    from .docker_commits import commit

    commit(engine, draft, image, manifest)


def _fetch(name: str, draft: Draft, size: int | None) -> int | None:
    from .docker_commits import fetch

    engine = docker_finding.engine()
    return fetch(engine, docker_snapshots.find(engine, name), draft, size)
