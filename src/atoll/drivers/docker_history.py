"""Snapshots of containers' files as images of the engine: committed, labelled, and gone with `docker rmi`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..codebases.standing import Standing, pinned
from ..driver import Register
from ..engine import disk
from ..engine.limits import DEFAULT_DISK
from ..engine.steward.client import COPYING
from ..engine.steward.history import CopiedHistory
from ..engine.steward.shelf import Draft
from ..types import Handle, Spec
from . import docker_finding, docker_snapshots
from .docker_engine import Engine
from .docker_pool import Pooled, wanted

REPOSITORY = "atoll-snapshot"
_INSIDE = ".atoll"
_CLEAN_UP = 600.0


class CommittedHistory(CopiedHistory, Standing, Pooled):
    """Part of `DockerDriver`. The files are copied while the sandbox stands still, and made an image of afterwards."""

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        wanted()  # before anything starts
        if spec.snapshot is None or resume is not None:
            ahead = await self._adopt(spec, register) if resume is None else None
            return ahead or await self._make(spec, register, resume)
        size = spec.resources.disk or DEFAULT_DISK
        async with self._fetched(spec.snapshot, size) as (files, owner, manifest):
            begin = {"files": files, "uid": owner, "codebase": manifest.get("codebase")}
            return await self._make(spec, register, None, begin)

    async def fork(
        self, handle: Handle, spec: Spec, count: int, register: Register, *, wait: float, force: bool
    ) -> list[Handle]:
        twin = spec._replace(snapshot=f"fork-of-{handle.id}")
        async with self._copied(handle, force=force) as (draft, _):
            begin = {**handle.data, "files": draft.files}
            return [await self._make(twin, register, None, begin) for _ in range(count)]

    async def snapshot(self, handle: Handle, name: str, facts: Mapping[str, Any], *, force: bool) -> Mapping[str, Any]:
        engine = Engine(str(handle.data["engine"]))
        await self.io.in_thread(lambda: docker_snapshots.check_free(engine, name))
        async with self._copied(handle, force=force) as (draft, _):
            # Who may look at images is not who may know what is in a sandbox's environment.
            manifest = {**facts, "name": name, "spec": {**facts["spec"], "env": {}}}
            with pinned(handle, manifest):
                await self.io.in_thread(lambda: _commit(engine, draft, handle, manifest))
        return await self.io.in_thread(lambda: docker_snapshots.find(engine, name))

    async def snapshots(self) -> list[Mapping[str, Any]]:
        return await self.io.in_thread(docker_snapshots.listing)

    async def find_snapshot(self, name: str) -> Mapping[str, Any]:
        return await self.io.in_thread(lambda: docker_snapshots.find(docker_finding.engine(), name))

    async def delete_snapshot(self, name: str) -> None:
        manifest = await self.find_snapshot(name)
        await self.io.in_thread(lambda: docker_snapshots.delete(docker_finding.engine(), name))
        if manifest.get("codebase"):
            from ..codebases import uses

            uses.unpin(manifest, str(manifest.get("pin")))

    async def rollback(self, handle: Handle, name: str) -> None:
        async with self._fetched(name, handle.data.get("disk")) as (files, _, _):
            await self._ask(handle, {"op": "rollback", "from": files}, COPYING)

    @contextlib.asynccontextmanager
    async def _fetched(self, name: str, size: int | None) -> AsyncIterator[tuple[str, int | None, Mapping[str, Any]]]:
        """A directory of the files of a snapshot, for as long as the block lasts, whose they are, and its manifest."""
        draft = await self.io.in_thread(lambda: self._shelf().draft())
        try:
            held = os.geteuid() == 0 and disk.available()
            manifest = await self.find_snapshot(name)
            owner = await self.io.in_thread(lambda: _fetch(manifest, draft, size if held else None))
            yield draft.files, owner, manifest
        finally:
            with self.io.shield(_CLEAN_UP):
                await self.io.in_thread(draft.close)


def _commit(engine: Engine, draft: Draft, handle: Handle, manifest: dict[str, Any]) -> None:
    from .docker_commits import commit

    commit(engine, draft, str(handle.data["image"]), handle.data.get("source"), manifest)


def _fetch(manifest: Mapping[str, Any], draft: Draft, size: int | None) -> int | None:
    from .docker_commits import fetch

    return fetch(docker_finding.engine(), manifest, draft, size)
