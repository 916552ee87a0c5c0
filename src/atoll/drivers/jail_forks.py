"""Forks of the jail's sandboxes: new ones over the layers of one that goes on."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from ..driver import Register
from ..engine import orders
from ..home import state_dir
from ..types import Handle, Spec
from .jail_talk import Talking

# How many sandboxes are made at once for one who wants many: more would only wait for a processor.
_AT_ONCE = 8


class Forks(Talking):
    """Part of `JailDriver`."""

    async def fork(
        self, handle: Handle, spec: Spec, count: int, register: Register, *, wait: float, force: bool
    ) -> list[Handle]:
        answer, _ = await self._ask(handle, {"op": "restack", "kind": "push", "force": force})
        home = state_dir()
        job = {**await self.io.in_thread(lambda: orders.job_for(spec, None, home)), "stack": answer["stack"]}
        job.update(codebase=handle.data.get("codebase"))
        if spec.codebase is None:
            return await self._make_many(handle, spec, job, register, count)
        from ..codebases import uses

        with uses.used(spec.codebase, job["codebase"]) as version:
            job["source"] = version.tree
            return await self._make_many(handle, spec, job, register, count)

    async def _make_many(
        self, parent: Handle, spec: Spec, job: dict[str, Any], register: Register, count: int
    ) -> list[Handle]:
        """Make twins, several at a time."""
        home = state_dir()
        with contextlib.ExitStack() as stack:
            if spec.packages:
                from ..packages import cache, choosing

                job["environment"] = stack.enter_context(cache.in_use(choosing.environment(spec, parent.data, home)))
            ordered: list[socket.socket] = []
            stack.callback(close_all, ordered)
            made: list[Handle] = []
            while len(made) < count:
                while len(ordered) < min(_AT_ONCE, count - len(made)):
                    ordered.append(await self._order(home, job))
                made.append(await self._taken(ordered.pop(0), home, job, register))
            return made


def close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
