"""The guest and the views of the jail behind bubblewrap: a wall of a third party, which others have looked at, too."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..codebases.layered import LayeredHistory
from ..codebases.standing import pinning
from ..driver import Register
from ..engine import orders
from ..engine.launch import cloudpickle_directory
from ..engine.layout import Layout
from ..engine.steward.client import StewardDriver
from ..home import state_dir
from ..types import Capability, Handle, Layer, Spec
from . import bwrap_binary


class BwrapDriver(StewardDriver, LayeredHistory):
    name = "bwrap"
    summary = "bubblewrap on this machine: namespaces, seccomp and Landlock around the same guest as the jail's"
    isolation = "container"
    capabilities = frozenset(Capability) - {Capability.IMAGE, Capability.AUDIT}
    wall = "atoll.drivers.bwrap_wall:BwrapWall"
    warm = True

    def places(self, handle: Handle | None = None) -> Layout:
        home = None if handle is None else handle.data.get("home")
        return Layout(home if isinstance(home, str) else state_dir(), self.name)

    def place(self, name: str) -> str:
        return self.places().box(name)

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        binary = bwrap_binary.choose()
        places = self.places(resume)
        places.make()
        return {
            "order": orders.job_for(spec, resume, places.home),
            "stands": {},
            "home": places.home,
            "wall": places.wall,
            "binary": list(binary),
            "cloudpickle": cloudpickle_directory(),
        }

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        stands: dict[str, Any] = {}
        known = None if resume is None else resume.data.get("codebase")
        if spec.snapshot and resume is None:
            manifest = await self.find_snapshot(spec.snapshot)
            stands["stack"], known = manifest["stack"], manifest.get("codebase")
        return (await self._make_all(spec, register, stands, known, resume=resume, packages=resume))[0]

    async def fork(
        self, handle: Handle, spec: Spec, count: int, register: Register, *, wait: float, force: bool
    ) -> list[Handle]:
        answer, _ = await self._ask(handle, {"op": "restack", "kind": "push", "force": force})
        stands = {"stack": answer["stack"]}
        return await self._make_all(spec, register, stands, handle.data.get("codebase"), count=count, packages=handle)

    async def _make_all(
        self,
        spec: Spec,
        register: Register,
        stands: dict[str, Any],
        known: Mapping[str, Any] | None,
        *,
        resume: Handle | None = None,
        packages: Handle | None = None,
        count: int = 1,
    ) -> list[Handle]:
        """Make sandboxes, with what they are made of kept from being removed meanwhile."""
        with contextlib.ExitStack() as kept:
            if spec.codebase is not None:
                from ..codebases import uses

                version = kept.enter_context(uses.used(spec.codebase, known))
                stands.update(source=version.tree, codebase=version.data())
            if spec.packages:
                from ..packages import cache, choosing

                environment = choosing.environment(spec, packages and packages.data, state_dir())
                stands["environment"] = kept.enter_context(cache.in_use(environment))
            more = {"stands": stands}
            return [await self._make(spec, pinning(register), resume, more=more) for _ in range(count)]

    async def workshop(self, spec: Spec, shown: Sequence[str]) -> Handle:
        return await self._make(spec, None, more={"stands": {"shown": list(shown)}})

    async def destroy(self, handle: Handle) -> None:
        await super().destroy(handle)
        if handle.data.get("codebase"):
            from ..codebases import uses

            uses.unpin(handle.data, handle.id)

    def sweep(self, handle: Handle, box: str) -> None:
        from ..engine import network
        from ..engine.layers import Layers
        from ..engine.removal import remove_tree
        from ..engine.steward import bounds

        bounds.sweep(handle.id)
        network.forget(handle.id, box)
        remove_tree(box)
        Layers(self.places(handle)).collect()

    async def health(self) -> list[Layer]:
        from ..engine import probe

        return await self.io.in_thread(lambda: [*probe.layers(), *bwrap_binary.layers()])
