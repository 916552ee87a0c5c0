"""The default wall: kernel namespaces, control groups, Landlock and seccomp, with no daemon to install."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..codebases.layered import LayeredHistory
from ..driver import AUDIT, Register
from ..engine import orders
from ..engine.layout import Layout
from ..errors import (
    ProtocolError,
    SandboxError,
    SandboxGone,
    Unresponsive,
)
from ..home import state_dir
from ..io import Stream
from ..types import Capability, Denial, Handle, Info, Layer, Metrics, Spec, Status
from .jail_forks import Forks
from .jail_talk import home_of


class JailDriver(Forks, LayeredHistory):
    name = "jail"
    summary = "kernel namespaces, control groups, Landlock and seccomp on this machine"
    isolation = "container"
    capabilities = frozenset(Capability)

    def places(self, handle: Handle | None = None) -> Layout:
        return Layout(state_dir() if handle is None else home_of(handle))

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        home = state_dir()
        job = await self.io.in_thread(lambda: orders.job_for(spec, resume, home))
        known = None if resume is None else resume.data.get("codebase")
        if spec.snapshot and resume is None:
            manifest = await self.find_snapshot(spec.snapshot)
            job["stack"], known = manifest["stack"], manifest.get("codebase")
        return await self._make_all(home, spec, job, register, known, resume)

    async def _make_all(
        self,
        home: str,
        spec: Spec,
        job: dict[str, Any],
        register: Register,
        known: Mapping[str, Any] | None,
        resume: Handle | None = None,
    ) -> Handle:
        """Make a sandbox with what it is made of kept from being removed meanwhile."""
        if spec.codebase is not None and "codebase" not in job:
            from ..codebases import uses

            with uses.used(spec.codebase, known) as version:
                job = {**job, "source": version.tree, "codebase": version.data()}
                return await self._make_all(home, spec, job, register, known, resume)
        if not spec.packages:
            return await self._make(home, job, register)
        from ..packages import cache, choosing

        with cache.in_use(choosing.environment(spec, resume and resume.data, home)) as tree:
            return await self._make(home, {**job, "environment": tree}, register)

    async def workshop(self, spec: Spec, shown: Sequence[str]) -> Handle:
        home = state_dir()
        job = await self.io.in_thread(lambda: orders.job_for(spec, None, home))
        return await self._make(home, {**job, "shown": list(shown)}, None)

    async def open_guest(self, handle: Handle) -> Stream:
        maker, first = self._first_streams.pop(handle.id, (0, None))
        if first is not None:
            if maker == os.getpid():
                return Stream(self.io, first)
            first.close()
        _, fds = await self._ask(handle, {"op": "open"})
        if len(fds) != 1:
            raise ProtocolError("The sandbox's keeper gave no stream.")
        return Stream(self.io, socket.socket(fileno=fds[0]))

    async def status(self, handle: Handle) -> Status:
        try:
            answer, _ = await self._ask(handle, {"op": "status"})
        except SandboxGone:
            from ..engine.sweep import kept_until

            places = Layout(home_of(handle))
            return "stopped" if kept_until(places, handle.id) > time.time() else "gone"
        return "paused" if answer.get("status") == "paused" else "running"

    async def describe(self, handle: Handle, info: Info) -> Info:
        return info._replace(
            limits=handle.data["limits"],
            walls=tuple(handle.data["walls"]),
            view=handle.data.get("view"),
            audit=(*AUDIT, "kernel") if info.spec.audit else AUDIT,
        )

    async def denials(self, handle: Handle) -> tuple[list[Denial], int]:
        from ..engine.denials import log

        with contextlib.suppress(SandboxGone):  # a stopped one has been written down
            await self._ask(handle, {"op": "audit"})
        return await self.io.in_thread(lambda: log.read(Layout(home_of(handle)).box(handle.id)))

    async def set_lifetime(self, handle: Handle, seconds: float) -> None:
        await self._ask(handle, {"op": "lifetime", "seconds": seconds})

    async def metrics(self, handle: Handle) -> Metrics:
        answer, _ = await self._ask(handle, {"op": "metrics"})
        return Metrics(**answer)

    async def pause(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "pause"})

    async def resume(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "resume"})

    async def keep(self, handle: Handle) -> None:
        await self._ask(handle, {"op": "checkpoint"})

    async def stop(self, handle: Handle) -> None:
        self._forget(handle.id)
        await self._ask(handle, {"op": "stop"})

    async def destroy(self, handle: Handle) -> None:
        self._forget(handle.id)
        try:
            await self._ask(handle, {"op": "destroy"})
        except (SandboxGone, Unresponsive):
            await self.io.in_thread(lambda: _sweep(handle))
        if handle.data.get("codebase"):
            from ..codebases import uses

            uses.unpin(handle.data, handle.id)

    async def health(self) -> list[Layer]:
        from ..engine.probe import layers

        return await self.io.in_thread(layers)


def _sweep(handle: Handle) -> None:
    """Remove what is left of a sandbox whose keeper does not answer.

    Raises:
        SandboxError: something of it cannot be removed.
    """
    from ..engine import cgroups, sweep
    from ..engine.layers import Layers

    places = Layout(home_of(handle))
    sweep.end_keeper(handle.data.get("pid"), handle.data.get("started"))
    try:
        sweep.remove(places, cgroups.find(), handle.id)
        Layers(places).collect()
    except OSError as error:
        raise SandboxError(f"What is left of sandbox {handle.id} cannot be removed: {error}.") from error
