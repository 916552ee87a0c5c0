"""Forks of the jail's sandboxes: their files as layers, their contexts as they are in memory."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ..driver import Register
from ..engine import orders
from ..errors import InvalidInput, SandboxError
from ..home import state_dir
from ..types import Handle, Spec
from .jail_talk import Talking

# How many sandboxes are made at once for one who wants many: more would only wait for a processor.
_AT_ONCE, _TOGETHER = 8, 16


class Forks(Talking):
    """Part of `JailDriver`."""

    async def fork(
        self, handle: Handle, spec: Spec, count: int, register: Register, *, wait: float, force: bool
    ) -> list[Handle]:
        if not handle.data.get("live"):
            return await self._fork_files(handle, spec, count, register, force=force)
        contexts = await self.hold(handle, wait)
        try:
            return await self._fork_files(handle, spec, count, register, force=force, contexts=contexts)
        finally:
            await self.release(handle)

    async def _fork_files(
        self,
        handle: Handle,
        spec: Spec,
        count: int,
        register: Register,
        *,
        force: bool,
        contexts: Sequence[Mapping[str, Any]] = (),
    ) -> list[Handle]:
        answer, _ = await self._ask(handle, {"op": "restack", "kind": "push", "force": force})
        home = state_dir()
        job = {**await self.io.in_thread(lambda: orders.job_for(spec, None, home)), "stack": answer["stack"]}
        job.update(codebase=handle.data.get("codebase"), plain=bool(contexts))
        if spec.codebase is None:
            return await self._make_many(handle, spec, job, register, count, contexts)
        from ..codebases import uses

        with uses.used(spec.codebase, job["codebase"]) as version:
            job["source"] = version.tree
            return await self._make_many(handle, spec, job, register, count, contexts)

    async def _make_many(
        self,
        parent: Handle,
        spec: Spec,
        job: dict[str, Any],
        register: Register,
        count: int,
        contexts: Sequence[Mapping[str, Any]],
    ) -> list[Handle]:
        """Make twins, several at a time; while some get their contexts, the next are being made."""
        home = state_dir()
        if contexts:
            from .jail_losses import lost

            job["lost"] = lost(contexts)
        with contextlib.ExitStack() as stack:
            if spec.packages:
                from ..packages import cache, choosing

                job["environment"] = stack.enter_context(cache.in_use(choosing.environment(spec, parent, home)))
            ordered: list[socket.socket] = []
            stack.callback(close_all, ordered)
            made: list[Handle] = []
            settled = 0
            while settled < count:
                while len(ordered) < min(_AT_ONCE, count - len(made)):
                    ordered.append(await self._order(home, job))
                if ordered:
                    made.append(await self._taken(ordered.pop(0), home, job, register))
                if len(made) - settled >= _TOGETHER or len(made) == count:
                    await self._bring_contexts(parent, made[settled:], contexts)
                    settled = len(made)
            return made

    async def _bring_contexts(
        self, parent: Handle, twins: Sequence[Handle], contexts: Sequence[Mapping[str, Any]]
    ) -> None:
        if not any(each.get("live") for each in contexts):
            return
        for report in await self.transplant(parent, twins):
            for context in report["contexts"]:
                if not context["live"]:
                    raise SandboxError(f"The context {context['name']!r} could not be forked: {context.get('reason')}.")

    async def hold(self, handle: Handle, wait: float) -> list[dict[str, Any]]:
        """Have every Python context that has run something stand still, until `release`, or until this process ends.

        Gives for each context, also those that cannot: `name`, `language`, `workdir`, `used`, `live`, and `reason` if
        it is not live, else what a twin `loses`: `files`, `threads` and `children`. Sessions come last.

        Raises:
            Busy: a context still runs a cell after `wait` seconds; or somebody else holds them.
            Unsupported: contexts of this sandbox cannot be forked while they live.
        """
        sock = self._reach(handle)
        try:
            answer, _ = await self._ask_on(sock, handle, {"op": "hold", "seconds": wait})
        except BaseException:
            sock.close()
            raise
        self._holds[handle.id] = sock
        contexts: list[dict[str, Any]] = answer["contexts"]
        return contexts

    async def transplant(self, handle: Handle, twins: Sequence[Handle]) -> list[dict[str, Any]]:
        """Make twins of the contexts that stand still, in sandboxes that are there already.

        Gives for each sandbox its `id` and `contexts`: `name`, `live`, and `reason` where there is no twin.

        Raises:
            InvalidInput: nobody holds this sandbox.
        """
        sock = self._holds.get(handle.id)
        if sock is None:
            raise InvalidInput("Call hold first.")
        answer, _ = await self._ask_on(sock, handle, {"op": "transplant", "twins": [twin.id for twin in twins]})
        made: list[dict[str, Any]] = answer["twins"]
        return made

    async def release(self, handle: Handle) -> None:
        """Let the contexts go on. Does nothing where nobody holds them."""
        sock = self._holds.pop(handle.id, None)
        if sock is not None:
            sock.close()


def close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
