"""The conversation with zygote and keepers."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from ..driver import Driver, Register
from ..engine import launch, messages
from ..engine.layout import Layout
from ..errors import (
    AtollError,
    Busy,
    CreateFailed,
    DiskFull,
    InvalidInput,
    SandboxError,
    SandboxGone,
    Unresponsive,
    Unsupported,
    WallUnavailable,
)
from ..home import state_dir
from ..types import Handle

# How long to wait for an answer, in seconds; a keeper that lives tells its status at once.
_ANSWER_TIMEOUT = 60.0
_TIMEOUTS = {"status": 5.0, "destroy": 20.0}
_TRIES = 3
_ERRORS: dict[str, type[AtollError]] = {
    "unsupported": Unsupported,
    "busy": Busy,
    "disk_full": DiskFull,
    "create_failed": CreateFailed,
    "wall_unavailable": WallUnavailable,
    "invalid_input": InvalidInput,
}


# What keepers said before they had a code for it.
_OLDER = "keeper does not know"
_RENEW = "Stop and resume it: then it is this one's."


class _FirstStream(socket.socket):
    """A stream that came with a new sandbox, and that nobody may ever use: dropping it is no mistake to warn about."""

    def __del__(self) -> None:
        self.close()


class Died(Exception):
    """Zygote or keeper ended before it answered. Never leaves the driver."""


class Talking(Driver):
    """Part of `JailDriver`: ordering sandboxes, and asking their keepers."""

    def __init__(self, io: Any) -> None:
        super().__init__(io)
        # With the pid: after a fork the stream is the parent's.
        self._first_streams: dict[str, tuple[int, socket.socket]] = {}
        self._workshops: dict[str, socket.socket] = {}

    async def _make(self, home: str, job: dict[str, Any], register: Register | None) -> Handle:
        # Who dies while making a sandbox leaves nothing of it, so another may be asked.
        for _ in range(_TRIES):
            try:
                return await self._create(home, job, register)
            except Died:
                continue
        raise CreateFailed("The sandbox's keeper died while it made the sandbox.")

    async def _create(self, home: str, job: dict[str, Any], register: Register | None) -> Handle:
        """Raises Died, beside what `create` raises."""
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
                raise Died from None
            raise
        return sock

    async def _receive(self, sock: socket.socket, home: str, job: dict[str, Any], register: Register | None) -> Handle:
        """Take over a sandbox that was ordered."""
        kept = False
        try:
            facts, fds = await self._answer(sock, "ready")
            self._first_streams[facts["id"]] = os.getpid(), _FirstStream(fileno=fds[0])
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
                    from ..codebases import uses

                    uses.pin(handle.data, handle.id)
                register(handle)
                await self.io.send(sock, messages.encode({"op": "keep"}))
            except BaseException:
                self._forget(facts["id"])
                raise
        finally:
            if not kept:
                sock.close()
        return handle

    async def _taken(self, sock: socket.socket, home: str, job: dict[str, Any], register: Register) -> Handle:
        try:
            return await self._receive(sock, home, job, register)
        except Died:
            return await self._make(home, job, register)

    async def _zygote(self, home: str, environment: str) -> socket.socket:
        _require_linux()
        return await self.io.in_thread(lambda: launch.connect(home, environment))

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
        return await self._answer(sock, "ok", fds, _TIMEOUTS.get(str(request["op"]), _ANSWER_TIMEOUT))

    def _reach(self, handle: Handle) -> socket.socket:
        try:
            return messages.connect(Layout(home_of(handle)).socket(handle.id))
        except messages.NOBODY:
            raise SandboxGone(f"Sandbox {handle.id} has ended.") from None
        except OSError as error:
            raise Unresponsive(f"The keeper of sandbox {handle.id} cannot be reached: {error.strerror}.") from error

    async def _answer(
        self, sock: socket.socket, word: str, most: int = 1, timeout: float = _ANSWER_TIMEOUT
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            data, fds = await self.io.recv_fds(sock, messages.MAX_MESSAGE, most, timeout)
            answer = messages.decode(data)
        except TimeoutError:
            raise Unresponsive("The sandbox's keeper did not answer in time.") from None
        except (messages.Ended, ConnectionError):
            if word == "ready":
                raise Died from None
            raise SandboxGone("The sandbox ended before it answered.") from None
        if word in answer:
            return answer[word], fds
        error: Mapping[str, Any] = answer.get("error", {})
        kind, message = _ERRORS.get(str(error.get("code")), SandboxError), str(error.get("message", answer))
        if error.get("code") == "unknown_request" or _OLDER in message:
            raise Unsupported("This sandbox was made by an older atoll, which cannot do that.", hint=_RENEW)
        if kind is WallUnavailable:
            from ..engine.probe import namespace_fix

            raise WallUnavailable(
                f"The jail cannot be built on this host: {message.rstrip(chr(46))}.", hint=namespace_fix()
            )
        raise kind(message)


def _require_linux() -> None:
    import sys

    if not sys.platform.startswith("linux"):
        raise WallUnavailable(
            "The jail driver needs Linux.", hint="On this system use a hosted driver, or another atoll server."
        )


def home_of(handle: Handle) -> str:
    home = handle.data.get("home")
    return home if isinstance(home, str) else state_dir()
