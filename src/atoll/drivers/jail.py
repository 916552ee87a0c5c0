"""The default wall: kernel namespaces, control groups, Landlock and seccomp, with no daemon to install."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..driver import AUDIT, Driver, Register, Staged
from ..engine import jobs, launch, messages
from ..engine.layout import HOME_INSIDE, OLD_ROOT, PACKAGES, SHOWN, Layout
from ..errors import (
    AtollError,
    Busy,
    CreateFailed,
    InvalidInput,
    ProtocolError,
    SandboxError,
    SandboxGone,
    SnapshotNotFound,
    Unresponsive,
    Unsupported,
    WallUnavailable,
)
from ..home import state_dir
from ..io import Stream
from ..types import Capability, Denial, Handle, Info, Layer, Metrics, Permissions, Spec, Status

if TYPE_CHECKING:
    from ..packages.cache import Environment

_ANSWER_TIMEOUT = 60.0
_NOT_A_WORKDIR = frozenset(
    ("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr", ".python")
) | {OLD_ROOT[1:]}
_TRIES = 3
# How many sandboxes are made at once for one who wants many: more would only wait for a processor.
_AT_ONCE = 4
_MOST_LAYERS = 200
# How long a review waits until it is written down how the source was at first: without that it must be more careful.
_RECORDING, _LOOK = 3.0, 0.01
_ERRORS: dict[str, type[AtollError]] = {
    "unsupported": Unsupported,
    "busy": Busy,
    "create_failed": CreateFailed,
    "wall_unavailable": WallUnavailable,
    "invalid_input": InvalidInput,
}


class _Died(Exception):
    """Zygote or keeper ended before it answered. Never leaves this module."""


class JailDriver(Driver):
    name = "jail"
    summary = "kernel namespaces, control groups, Landlock and seccomp on this machine"
    capabilities = frozenset(Capability)

    def __init__(self, io: Any) -> None:
        super().__init__(io)
        # With the pid: after a fork the stream is the parent's.
        self._first_streams: dict[str, tuple[int, socket.socket]] = {}
        self._workshops: dict[str, socket.socket] = {}
        # The connection of each sandbox whose contexts stand still: they go on when it ends.
        self._holds: dict[str, socket.socket] = {}

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        home = state_dir()
        job = await self.io.in_thread(lambda: _job(spec, resume, home))
        known = None if resume is None else resume.data.get("codebase")
        if spec.snapshot and resume is None:
            manifest = await self.find_snapshot(spec.snapshot)
            job["stack"], known = manifest["stack"], manifest.get("codebase")
        return await self._make_all(spec, job, register, known, resume)

    async def _make_all(
        self,
        spec: Spec,
        job: dict[str, Any],
        register: Register,
        known: Mapping[str, Any] | None,
        resume: Handle | None = None,
    ) -> Handle:
        """Make a sandbox with what it is made of kept from being removed meanwhile."""
        home = state_dir()
        if spec.codebase is not None and "codebase" not in job:
            from . import jail_codebases

            with jail_codebases.used(spec.codebase, known) as version:
                job = {**job, "source": version.tree, "codebase": version.data()}
                return await self._make_all(spec, job, register, known, resume)
        if not spec.packages:
            return await self._make(home, job, register)
        from ..packages import cache

        with cache.in_use(_environment(spec, resume, home)) as tree:
            return await self._make(home, {**job, "environment": tree}, register)

    async def workshop(self, spec: Spec, shown: Sequence[str]) -> Handle:
        home = state_dir()
        job = await self.io.in_thread(lambda: _job(spec, None, home))
        return await self._make(home, {**job, "shown": list(shown)}, None)

    async def _make(self, home: str, job: dict[str, Any], register: Register | None) -> Handle:
        # Who dies while making a sandbox leaves nothing of it, so another may be asked.
        for _ in range(_TRIES):
            try:
                return await self._create(home, job, register)
            except _Died:
                continue
        raise CreateFailed("The sandbox's keeper died while it made the sandbox.")

    async def _create(self, home: str, job: dict[str, Any], register: Register | None) -> Handle:
        """Raises _Died, beside what `create` raises."""
        return await self._receive(await self._order(home, job), home, job, register)

    async def _order(self, home: str, job: dict[str, Any]) -> socket.socket:
        """Ask for a sandbox, which is made while the caller does something else."""
        sock = await self._zygote(home, job["environment"] or "")
        try:
            await self.io.send(sock, messages.encode({"create": job}))
        except BaseException as error:
            sock.close()
            if isinstance(error, ValueError):
                raise InvalidInput(f"The sandbox's settings are too long: {error}.") from None
            if isinstance(error, OSError):
                raise _Died from None
            raise
        return sock

    async def _receive(self, sock: socket.socket, home: str, job: dict[str, Any], register: Register | None) -> Handle:
        """Take over a sandbox that was ordered."""
        kept = False
        try:
            facts, fds = await self._answer(sock, "ready")
            self._first_streams[facts["id"]] = os.getpid(), socket.socket(fileno=fds[0])
            key = os.path.basename(os.path.dirname(job["environment"] or ""))
            data = {**facts, "home": home, "environment": key or None, "codebase": job.get("codebase")}
            handle = Handle(self.name, facts["id"], data)
            if register is None:
                # Never told to keep it, its keeper ends it when this connection does.
                self._workshops[facts["id"]] = sock
                kept = True
                return handle
            try:
                if job["audit"]:
                    await self.io.send(sock, messages.encode({"op": "audit", "start": True}))
                    await self._answer(sock, "ok")
                if handle.data["codebase"]:
                    from . import jail_codebases

                    jail_codebases.pin(handle.data, handle.id)
                register(handle)
                await self.io.send(sock, messages.encode({"op": "keep"}))
            except BaseException:
                self._forget(facts["id"])
                raise
        finally:
            if not kept:
                sock.close()
        return handle

    async def _zygote(self, home: str, environment: str) -> socket.socket:
        _require_linux()
        return await self.io.in_thread(lambda: launch.connect(home, environment))

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

            places = Layout(_home(handle))
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
        return await self.io.in_thread(lambda: log.read(Layout(_home(handle)).box(handle.id)))

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
        except SandboxGone:
            await self.io.in_thread(lambda: _sweep(handle))
        if handle.data.get("codebase"):
            from . import jail_codebases

            jail_codebases.unpin(handle.data, handle.id)

    async def snapshot(self, handle: Handle, name: str, facts: Mapping[str, Any], *, force: bool) -> Mapping[str, Any]:
        kept = {**facts, "codebase": handle.data.get("codebase")}
        request = {"op": "restack", "kind": "push", "force": force, "name": name, "facts": kept}
        if not kept["codebase"]:
            await self._ask(handle, request)
            return await self.find_snapshot(name)
        from . import jail_codebases

        # Each try has a pin of its own: another one may have the name.
        pin = f"snapshot-{name}.{os.urandom(4).hex()}"
        kept["pin"] = pin
        jail_codebases.pin(handle.data, pin)
        try:
            await self._ask(handle, request)
        except AtollError:
            jail_codebases.unpin(handle.data, pin)
            raise
        return await self.find_snapshot(name)

    async def snapshots(self) -> list[Mapping[str, Any]]:
        from ..engine import history

        return await self.io.in_thread(lambda: history.manifests(Layout(state_dir())))

    async def find_snapshot(self, name: str) -> Mapping[str, Any]:
        from ..engine import history

        found = history.manifest(Layout(state_dir()), name)
        if found is None:
            raise SnapshotNotFound(f"No snapshot has the name {name!r}.", hint="`atoll snapshot list` shows them.")
        return found

    async def delete_snapshot(self, name: str) -> None:
        from ..engine import history

        manifest = await self.find_snapshot(name)
        await self.io.in_thread(lambda: history.delete(Layout(state_dir()), name))
        if manifest.get("codebase"):
            from . import jail_codebases

            jail_codebases.unpin(manifest, str(manifest.get("pin")))

    async def export_snapshot(self, name: str, path: str) -> None:
        from . import jail_portable

        found = await self.find_snapshot(name)
        await self.io.in_thread(lambda: jail_portable.export(state_dir(), found, path))

    async def import_snapshot(self, path: str, name: str | None, *, limit: int) -> Mapping[str, Any]:
        from . import jail_portable

        made = await self.io.in_thread(lambda: jail_portable.import_(state_dir(), path, name, limit))
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
        base = f"{Layout(_home(handle)).box(handle.id)}/base"
        return Staged(fds[0], tuple(fds[1:]), answer["source"], base)

    async def discard(self, handle: Handle, *, force: bool) -> None:
        await self._ask(handle, {"op": "restack", "kind": "discard", "force": force})

    async def set_permissions(
        self, handle: Handle, permissions: Permissions | None, ignore: Sequence[str], *, force: bool
    ) -> str | None:
        rules = _rules(permissions)
        request = {"op": "restack", "kind": "rules", "force": force, "permissions": rules, "ignore": list(ignore)}
        answer, _ = await self._ask(handle, request)
        recipe: str | None = answer["view"]
        return recipe

    async def fork(self, handle: Handle, spec: Spec, count: int, register: Register, *, force: bool) -> list[Handle]:
        answer, _ = await self._ask(handle, {"op": "restack", "kind": "push", "force": force})
        home = state_dir()
        job = {**await self.io.in_thread(lambda: _job(spec, None, home)), "stack": answer["stack"]}
        job["codebase"] = handle.data.get("codebase")
        if spec.codebase is not None:
            from . import jail_codebases

            with jail_codebases.used(spec.codebase, job["codebase"]) as version:
                job["source"] = version.tree
                return await self._make_many(spec, job, register, count, handle)
        return await self._make_many(spec, job, register, count, handle)

    async def _make_many(
        self, spec: Spec, job: dict[str, Any], register: Register, count: int, like: Handle
    ) -> list[Handle]:
        """Make sandboxes, several at a time."""
        home = state_dir()
        with contextlib.ExitStack() as stack:
            if spec.packages:
                from ..packages import cache

                job["environment"] = stack.enter_context(cache.in_use(_environment(spec, like, home)))
            ordered: list[socket.socket] = []
            stack.callback(_close_all, ordered)
            made: list[Handle] = []
            while len(made) < count:
                while len(ordered) < min(_AT_ONCE, count - len(made)):
                    ordered.append(await self._order(home, job))
                made.append(await self._taken(ordered.pop(0), home, job, register))
            return made

    async def _taken(self, sock: socket.socket, home: str, job: dict[str, Any], register: Register) -> Handle:
        try:
            return await self._receive(sock, home, job, register)
        except _Died:
            return await self._make(home, job, register)

    async def health(self) -> list[Layer]:
        from ..engine.probe import layers

        return await self.io.in_thread(layers)

    def _forget(self, sandbox: str) -> None:
        workshop = self._workshops.pop(sandbox, None)
        if workshop is not None:
            workshop.close()
        _, first = self._first_streams.pop(sandbox, (0, None))
        if first is not None:
            first.close()

    async def _ask(self, handle: Handle, request: dict[str, Any], fds: int = 1) -> tuple[dict[str, Any], list[int]]:
        """One question to the keeper.

        Raises:
            SandboxGone: nobody keeps this sandbox any more.
            Unresponsive: its keeper cannot be reached from here; that says nothing about the sandbox.
        """
        with self._reach(handle) as sock:
            return await self._ask_on(sock, handle, request, fds)

    async def _ask_on(
        self, sock: socket.socket, handle: Handle, request: dict[str, Any], fds: int = 1
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            await self.io.send(sock, messages.encode(request))
        except OSError:
            raise SandboxGone(f"Sandbox {handle.id} has ended.") from None
        return await self._answer(sock, "ok", fds)

    def _reach(self, handle: Handle) -> socket.socket:
        try:
            return messages.connect(Layout(_home(handle)).socket(handle.id))
        except messages.NOBODY:
            raise SandboxGone(f"Sandbox {handle.id} has ended.") from None
        except OSError as error:
            raise Unresponsive(f"The keeper of sandbox {handle.id} cannot be reached: {error.strerror}.") from error

    async def _answer(self, sock: socket.socket, word: str, most: int = 1) -> tuple[dict[str, Any], list[int]]:
        try:
            data, fds = await self.io.recv_fds(sock, messages.MAX_MESSAGE, most, _ANSWER_TIMEOUT)
            answer = messages.decode(data)
        except TimeoutError:
            raise Unresponsive("The sandbox's keeper did not answer in time.") from None
        except (messages.Ended, ConnectionError):
            if word == "ready":
                raise _Died from None
            raise SandboxGone("The sandbox ended before it answered.") from None
        if word in answer:
            return answer[word], fds
        error: Mapping[str, Any] = answer.get("error", {})
        raise _ERRORS.get(str(error.get("code")), SandboxError)(str(error.get("message", answer)))

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


def _require_linux() -> None:
    import sys

    if not sys.platform.startswith("linux"):
        raise WallUnavailable(
            "The jail driver needs Linux.", hint="On this system use a hosted driver, or another atoll server."
        )


def _home(handle: Handle) -> str:
    home = handle.data.get("home")
    return home if isinstance(home, str) else state_dir()


def _sweep(handle: Handle) -> None:
    """Remove what is left of a sandbox whose keeper does not answer.

    Raises:
        SandboxError: something of it cannot be removed.
    """
    from ..engine import cgroups, sweep
    from ..engine.layers import Layers

    places = Layout(_home(handle))
    sweep.end_keeper(handle.data.get("pid"), handle.data.get("started"))
    try:
        sweep.remove(places, cgroups.find(), handle.id)
        Layers(places).collect()
    except OSError as error:
        raise SandboxError(f"What is left of sandbox {handle.id} cannot be removed: {error}.") from error


def _close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _rules(permissions: Permissions | None) -> dict[str, Any] | None:
    if permissions is None:
        return None
    from ..policy.permissions import to_json

    return to_json(permissions)


def _job(spec: Spec, resume: Handle | None, home: str) -> dict[str, Any]:
    """What the keeper needs to know, with every path looked at."""
    source = _source(spec.source, home) if spec.source else None
    _check_workdir(spec.workdir)
    image = None
    if spec.image:
        from ..engine.images import unpacked

        image = unpacked(spec.image, home)
    resources = spec.resources
    return {
        "image": image,
        "source": source,
        "workdir": spec.workdir,
        "network": spec.network,
        "memory": resources.memory,
        "pids": resources.pids,
        "cpu": resources.cpu,
        "disk": resources.disk,
        "strict": spec.strict,
        "env": dict(spec.env),
        "lifetime": spec.lifetime,
        "resume": resume.id if resume else None,
        "resume_uid": resume.data["uid"] if resume else None,
        "environment": None,
        "shown": [],
        "stack": jobs.COMMON["stack"],
        "audit": spec.audit,
        "permissions": _rules(spec.permissions),
        "ignore": list(spec.ignore),
    }


def _environment(spec: Spec, resume: Handle | None, home: str) -> Environment:
    """The environment that a sandbox is made with; one that is resumed has that of its first start."""
    from ..packages import cache

    if spec.image:
        raise Unsupported(
            "packages= and image= do not go together: the packages fit this machine's own Python.",
            hint="Install them in the image, or leave image= out.",
        )
    if f"{spec.workdir}/".startswith(f"{PACKAGES}/"):
        raise InvalidInput(f"workdir={spec.workdir!r} is where the packages are; choose another one.")
    key = resume.data.get("environment") if resume else None
    if not isinstance(key, str):
        return cache.wanted(home, spec.packages)
    environment = cache.known(home, key)
    if not environment.is_built:
        raise CreateFailed(f"The packages that this sandbox was made with are gone from {cache.directory(home)}.")
    return environment


def _source(path: str, home: str) -> str:
    """The real path of a source tree, which must not show the sandbox what atoll keeps of others."""
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise InvalidInput(f"source={path!r} is not a directory.")
    state = os.path.realpath(home)
    if os.path.commonpath((real, state)) in (real, state):
        raise InvalidInput(
            f"source={path!r} and atoll's state directory {state} lie in one another: the sandbox would see the files "
            "of other sandboxes. Give a narrower source, or set ATOLL_HOME to a directory elsewhere."
        )
    return real


def _check_workdir(workdir: str) -> None:
    first = workdir.split("/")[1]
    below_ours = any(workdir.startswith(f"{place}/") for place in (HOME_INSIDE, "/home", "/root"))
    if first in _NOT_A_WORKDIR or first == SHOWN[1:] or (below_ours and workdir != HOME_INSIDE):
        raise InvalidInput(
            f"workdir={workdir!r} lies in a place that the sandbox's system needs; choose one like /workspace, /app "
            f"or {HOME_INSIDE}."
        )
