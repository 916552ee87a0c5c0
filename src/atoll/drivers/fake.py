"""No wall at all: the real guest in a directory of its own, for tests and documentation.

What runs in it has all the rights of who made it. Nothing is enforced but the lifetime.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from ..driver import AUDIT, Driver, Register
from ..engine.launch import cloudpickle_directory
from ..engine.removal import remove_tree
from ..errors import Busy, CreateFailed, SandboxError, SandboxGone, Unresponsive, Unsupported
from ..home import state_dir
from ..io import Stream
from ..types import Capability, Enforcement, Handle, Info, Layer, Metrics, Resources, Spec, Status

_PATIENCE = 30.0
_MESSAGE = 64 << 10
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NO_LIMITS: dict[str, Enforcement] = dict.fromkeys(Resources._fields, "none")


class FakeDriver(Driver):
    name = "fake"
    summary = "no wall: commands run on this machine with your rights; for tests and documentation only"
    capabilities = frozenset(
        {
            Capability.CODE,
            Capability.PTY,
            Capability.WATCH,
            Capability.NETWORK_HOST,
            Capability.LIFETIME,
            Capability.SOURCE,
            Capability.PAUSE,
            Capability.STOP,
            Capability.METRICS,
        }
    )

    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        _refuse(spec)
        if resume is None:
            name = "fake-" + os.urandom(6).hex()
            handle = Handle(self.name, name, {"path": os.path.join(state_dir(), "fake", name)})
        else:
            handle = resume
        path: str = handle.data["path"]
        try:
            if resume is None:
                await self.io.in_thread(lambda: _furnish(path, spec))
            await self._birth(path, spec, lambda: register(handle))
        except BaseException:
            if resume is None:
                _remove(path)
            raise
        return handle

    async def _birth(self, path: str, spec: Spec, register: Any) -> None:
        """Start the keeper, and let it live once the sandbox is written down."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                await self.io.in_thread(lambda: _start_keeper(path, spec, theirs.fileno()))
            answer, _ = await self._answer(ours)
            if "error" in answer:
                raise CreateFailed(f"The guest did not start: {answer['error']}")
            register()
            await self.io.send(ours, b'{"op":"keep"}')
            await self._answer(ours)

    async def open_guest(self, handle: Handle) -> Stream:
        answer, fds = await self._ask(handle, "open")
        if not fds:
            raise Busy(str(answer.get("error", "The sandbox gives no stream.")), hint="Call resume() first.")
        return Stream(self.io, socket.socket(fileno=fds[0]))

    async def status(self, handle: Handle) -> Status:
        try:
            answer, _ = await self._ask(handle, "status")
        except SandboxGone:
            return "stopped" if _is_stopped(handle) else "gone"
        return "paused" if answer.get("paused") else "running"

    async def destroy(self, handle: Handle) -> None:
        try:
            await self._ask(handle, "destroy")
        except SandboxGone:
            pass  # the keeper has ended already; its files are what is left
        await self.io.in_thread(lambda: _remove(handle.data["path"]))

    async def health(self) -> list[Layer]:
        return [
            Layer("guest", ready=True, detail=f"runs with {sys.executable}"),
            Layer("wall", ready=False, detail="none, on purpose", required=False),
        ]

    async def describe(self, handle: Handle, info: Info) -> Info:
        return info._replace(limits=_NO_LIMITS, walls=(), audit=AUDIT)

    async def set_lifetime(self, handle: Handle, seconds: float) -> None:
        await self._ask(handle, "lifetime", seconds=seconds)

    async def metrics(self, handle: Handle) -> Metrics:
        answer, _ = await self._ask(handle, "status")
        return Metrics(None, None, answer["processes"], None, answer["uptime"])

    async def pause(self, handle: Handle) -> None:
        await self._ask(handle, "pause")

    async def resume(self, handle: Handle) -> None:
        await self._ask(handle, "resume")

    async def keep(self, handle: Handle) -> None:
        await self._ask(handle, "checkpoint")

    async def stop(self, handle: Handle) -> None:
        await self._ask(handle, "stop")

    async def _ask(self, handle: Handle, op: str, **more: Any) -> tuple[dict[str, Any], list[int]]:
        """One question to the keeper. Raises SandboxGone when there is none."""
        try:
            with _connect(handle.data["path"]) as sock:
                await self.io.send(sock, json.dumps({"op": op, **more}).encode())
                return await self._answer(sock)
        except (OSError, EOFError) as error:
            raise SandboxGone(f"The sandbox {handle.id} has ended.") from error

    async def _answer(self, sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
        try:
            data, fds = await self.io.recv_fds(sock, _MESSAGE, 1, _PATIENCE)
        except TimeoutError:
            raise Unresponsive("The sandbox's keeper does not answer.") from None
        if not data:
            raise EOFError
        answer: dict[str, Any] = json.loads(data)
        return answer, fds


def _refuse(spec: Spec) -> None:
    """What is asked for by name and cannot be given. The default network is let pass: this is a fake."""
    wishes = {
        "image": spec.image is not None,
        "resources": spec.resources != Resources(),
        "strict": spec.strict,
        "audit": spec.audit,
        f"network={spec.network!r}": spec.network == "all",
        "packages": bool(spec.packages),
    }
    for wish, asked in wishes.items():
        if asked:
            raise Unsupported(
                f"The fake driver has no wall and cannot honour {wish}; leave it out, or use another driver."
            )


def _furnish(path: str, spec: Spec) -> None:
    """The directory of a new sandbox, with a copy of the source in its workspace."""
    import shutil

    workspace = path + "/root" + spec.workdir
    os.makedirs(path + "/root/tmp", mode=0o700)
    if spec.source is None:
        os.makedirs(workspace)
        return
    try:
        shutil.copytree(spec.source, workspace, symlinks=True)
    except (OSError, shutil.Error) as error:
        raise CreateFailed(f"The source {spec.source} cannot be copied: {error}") from error


def _start_keeper(path: str, spec: Spec, maker: int) -> None:
    """It forks once and so belongs to nobody: its maker need not wait for it."""
    import subprocess

    packages = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = f"import sys; sys.path.insert(0, {packages!r}); from atoll.drivers.fake_keeper import main; main()"
    root = path + "/root"
    config = {
        "workdir": spec.workdir,
        "root": root,
        "home": root + spec.workdir,
        "env": {"PATH": _PATH, "LANG": "C.UTF-8", "TMPDIR": os.path.join(root, "tmp"), **spec.env},
        "python": sys.executable,
        "state": path + "/state",
        "cloudpickle": cloudpickle_directory(),
    }
    job = json.dumps({"path": path, "config": config, "lifetime": spec.lifetime, "packages": packages, "maker": maker})
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, job],
        pass_fds=[maker],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # it outlives its maker, who must not wait for the end of a pipe
        check=False,
    )
    if done.returncode != 0:
        raise CreateFailed(f"The keeper of the sandbox did not start; it exited with {done.returncode}.")


def _connect(path: str) -> socket.socket:
    """The path of a Unix socket ends at 107 bytes, so the way goes through the directory's descriptor."""
    directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(f"/proc/self/fd/{directory}/keeper")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(directory)
    return sock


def _remove(path: str) -> None:
    try:
        if os.path.lexists(path):
            remove_tree(path)
    except OSError as error:
        raise SandboxError(f"What is left of the sandbox at {path} cannot be removed: {error}") from error


def _is_stopped(handle: Handle) -> bool:
    return os.path.exists(os.path.join(handle.data["path"], "stopped"))
