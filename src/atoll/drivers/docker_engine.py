"""The engine's interface, spoken over its Unix socket: what a sandbox costs at each start and in each steward.

The `docker` package does the rest. It takes a fifth of a second and 30 MB to load, which every steward would pay.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ..errors import WallUnavailable
from ..http.address import Address
from ..http.client import Lost, Refused as HTTPRefused, TooLarge, Wait, ask, upgrade

_MOST = 32 << 20
_SECONDS = 60.0


class Refused(Exception):
    """The engine answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(OSError):
    """The engine does not answer. `fix` is a command."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix

    def as_error(self) -> WallUnavailable:
        return WallUnavailable(str(self), hint=self.fix)


class Engine:
    """One engine, Docker's or Podman's. Each call is a connection of its own, so one may be used by many.

    Args:
        wait: how to wait until the engine's answer can be read, for so many seconds at most.
    """

    def __init__(self, path: str, wait: Wait | None = None) -> None:
        self.path = path
        self._address = Address("unix", path)
        self._wait = wait

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query)

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        return self.call("POST", path, query, body)

    def delete(self, path: str, **query: Any) -> Any:
        return self.call("DELETE", path, query)

    def call(self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> Any:
        """What the engine answers, as JSON; None for nothing.

        Raises:
            Refused: it refuses.
            Unreachable: it does not answer at all.
        """
        asked = "&".join(f"{quote(name)}={quote(_text(value), safe='')}" for name, value in query.items())
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        target = f"{path}{'?' + asked if asked else ''}"
        try:
            status, _, content = ask(
                self._address, method, target, headers, content, within=_SECONDS, most=_MOST, wait=self._wait
            )
        except (Lost, TooLarge) as error:
            raise _unreachable(self.path, error) from error
        text = content.decode(errors="replace").strip()
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            answer = None
        if status >= 400:
            told = answer.get("message") if isinstance(answer, dict) else None
            raise Refused(status, str(told or text or f"status {status}")[:2000])
        return answer

    def hijack(self, path: str) -> socket.socket:
        """The connection itself, after a request that ends HTTP on it.

        Raises:
            Refused: the engine goes on in HTTP.
            Unreachable: it does not answer at all.
        """
        try:
            return upgrade(
                self._address,
                "POST",
                path,
                {"Connection": "Upgrade", "Upgrade": "tcp"},
                within=_SECONDS,
                accepted=(101, 200),
            )
        except HTTPRefused as error:
            raise Refused(error.status, str(error)) from None
        except Lost as error:
            raise _unreachable(self.path, error) from error


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return value if isinstance(value, str) else json.dumps(value)


def _unreachable(path: str, error: Lost | TooLarge) -> Unreachable:
    cause = error.__cause__
    if isinstance(cause, PermissionError):
        return Unreachable(
            f"This user may not talk to the container engine at {path}.",
            "Run: sudo usermod -aG docker $USER, and log in again; or use rootless Podman.",
        )
    if isinstance(cause, FileNotFoundError | ConnectionRefusedError):
        return Unreachable(
            f"The container engine is not running: nobody listens at {path}.",
            "Run: systemctl start docker (or, where there is no systemd: dockerd &).",
        )
    return Unreachable(f"The container engine at {path} does not answer. {error}", "Run: systemctl restart docker")
