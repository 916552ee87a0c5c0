"""Sandboxes on a Jupyter server, by its address and token: the guest, started there by a kernel of Python.

What `$ATOLL_JUPYTER_URL` and `$ATOLL_JUPYTER_TOKEN` say decides where. No wall of ours: what runs there has the rights
of the server's kernels.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Any

from ..engine.steward.client import ERRORS, StewardDriver
from ..engine.steward.lines import package_directory, switchboard
from ..engine.steward.wall import StartFailed, Wall
from ..errors import InvalidInput
from ..types import Capability, Enforcement, Handle, Layer, Resources, Spec
from . import jupyter_rest as rest
from .jupyter_tunnel import Tunnel, carry

KERNEL = "ATOLL_JUPYTER_KERNEL"
_NO_LIMITS: dict[str, Enforcement] = dict.fromkeys(Resources._fields, "none")
_WORDS = "words"
_PATIENCE = 6.0


class JupyterServerWall(Wall):
    _kernel = ""
    _control: socket.socket | None = None
    _carrier = 0

    def start(self) -> socket.socket:
        self.facts = {"limits": _NO_LIMITS, "walls": [], "server": self._address.shown}
        self._kernel = rest.start(self._address, self.job["hidden"])
        self.facts["kernel"] = self._kernel
        tunnel = Tunnel(self._address, self._kernel, {**self.job["order"], "package": _package()})
        ours, theirs = socket.socketpair()
        with theirs:
            self._carrier = os.fork()
            if self._carrier == 0:
                carry(tunnel, theirs, f"{self.box}/{_WORDS}")
        tunnel.close()
        fd = ours.detach()
        self._control = switchboard(fd, fd)
        return self._control

    @property
    def _address(self) -> rest.Address:
        return rest.Address(*self.job["address"])

    def end(self) -> None:
        if self._control is not None:
            # At which the switchboard ends, and the carrier has the guest end.
            with contextlib.suppress(OSError, StartFailed):
                self._control.shutdown(socket.SHUT_RDWR)
        if self._carrier:
            _await(self._carrier)
            self._carrier = 0
        if self._kernel:
            with contextlib.suppress(OSError, StartFailed):
                rest.end(self._address, self._kernel)
            self._kernel = ""

    def epitaph(self) -> str | None:
        try:
            with open(f"{self.box}/{_WORDS}", encoding="utf-8") as file:
                return f"{file.read(1000)}; its Jupyter server is {self._address.shown}."
        except OSError:
            return f"its guest ended by itself; its Jupyter server is {self._address.shown}."


class JupyterServerDriver(StewardDriver):
    name = "jupyter-server"
    summary = "no wall: on the Jupyter server of ATOLL_JUPYTER_URL, with the rights of its kernels"
    capabilities = frozenset(
        {Capability.COMMANDS, Capability.CODE, Capability.PTY, Capability.WATCH, Capability.LIFETIME}
    )
    wall = "atoll.drivers.jupyter_server:JupyterServerWall"
    warm = True

    def prepare(self, spec: Spec, box: str, resume: Handle | None) -> dict[str, Any]:
        address = _address()
        try:
            hidden, kernel = _choose(address)
        except StartFailed as failed:
            raise ERRORS[failed.code](str(failed), hint=failed.hint) from None
        order = {"workdir": spec.workdir, "env": dict(spec.env), **kernel}
        return {"address": list(address), "hidden": hidden, "order": order}

    def sweep(self, handle: Handle, box: str) -> None:
        """End a kernel whose steward was killed. A server that is gone has no kernels."""
        kernel, shown = handle.data.get("kernel"), handle.data.get("server")
        try:
            address = _address()
        except InvalidInput:
            return
        if isinstance(kernel, str) and address.shown == shown:
            with contextlib.suppress(OSError, StartFailed):
                rest.end(address, kernel)

    async def health(self) -> list[Layer]:
        try:
            address = _address()
            found = await self.io.in_thread(lambda: rest.kernels(address))
        except InvalidInput as error:
            return [Layer("server", ready=False, detail=error.message, fix=error.hint)]
        except StartFailed as failed:
            return [Layer("server", ready=False, detail=str(failed), fix=failed.hint)]
        python = "python" in found.values()
        return [
            Layer("server", ready=True, detail=address.shown),
            Layer(
                "kernels",
                ready=python,
                detail=", ".join(sorted(found)) or "none",
                fix=None if python else "on the machine of the server: pip install ipykernel",
            ),
            Layer("wall", ready=False, detail="none of ours: the server's own machine", required=False),
        ]


def _address() -> rest.Address:
    """Raises InvalidInput."""
    url = os.environ.get(rest.URL)
    if not url:
        raise InvalidInput(
            f"{rest.URL} does not say which Jupyter server to use.",
            hint=f"Run: export {rest.URL}=http://127.0.0.1:8888/ {rest.TOKEN}=…; `jupyter server list` shows both.",
        )
    return rest.Address.parse(url, os.environ.get(rest.TOKEN, ""))


def _choose(address: rest.Address) -> tuple[str, dict[str, str]]:
    """The kernel that starts the guest, and what the guest is told of kernels. Raises StartFailed."""
    found = rest.kernels(address)
    pythons = sorted((name for name, language in found.items() if language == "python"), key=lambda n: n != "python3")
    wanted = os.environ.get(KERNEL) or next(iter(pythons), "")
    listed = ", ".join(sorted(found)) or "none"
    if wanted and wanted not in found:
        raise StartFailed(
            f"The Jupyter server at {address.shown} has no kernel {wanted!r}; it has: {listed}.",
            "unsupported",
            f"Set {KERNEL} to one of them.",
        )
    if not pythons:
        raise StartFailed(
            f"The Jupyter server at {address.shown} has no kernel of Python, which the guest needs; it has: {listed}.",
            "unsupported",
            "Run on its machine: pip install ipykernel",
        )
    if found[wanted] == "python":
        return wanted, {"kernel": wanted, "language": "python"}
    return pythons[0], {"kernel": pythons[0], "language": f"jupyter:{wanted}"}


def _package() -> str:
    """The guest, as a server's kernel is given it."""
    import base64
    import io
    import zipfile

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as package:
        for part in ("guest", "wire"):
            directory = f"{package_directory()}/atoll/{part}"
            for name in sorted(os.listdir(directory)):
                if name.endswith((".py", ".js")):
                    package.write(f"{directory}/{name}", f"atoll/{part}/{name}")
    return base64.b64encode(content.getvalue()).decode("ascii")


def _await(pid: int) -> None:
    """Wait for the carrier, and end one that takes too long."""
    import select

    watch = os.pidfd_open(pid)
    try:
        if not select.select([watch], [], [], _PATIENCE)[0]:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    finally:
        os.close(watch)
