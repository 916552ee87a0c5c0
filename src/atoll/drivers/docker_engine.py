"""The engine's interface, spoken over its Unix socket: what a sandbox costs at each start and in each steward.

The `docker` package does the rest. It takes a fifth of a second and 30 MB to load, which every steward would pay.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import WallUnavailable

_MOST = 32 << 20
_CHUNK = 1 << 16
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

    def __init__(self, path: str, wait: Callable[[socket.socket, float], bool] | None = None) -> None:
        self.path = path
        self._wait = wait

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query)

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        return self.call("POST", path, query, body)

    def delete(self, path: str, **query: Any) -> Any:
        return self.call("DELETE", path, query)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None = None,
        seconds: float = _SECONDS,
    ) -> Any:
        """What the engine answers, as JSON; None for nothing.

        Raises:
            Refused: it refuses.
            Unreachable: it does not answer at all.
        """
        with self.connect(seconds) as sock:
            try:
                sock.sendall(_request(method, path, query, body))
                status, content = _answer(sock, lambda: self._wait is None or self._wait(sock, seconds))
            except OSError as error:
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

    def connect(self, seconds: float = _SECONDS) -> socket.socket:
        """Raises Unreachable."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(seconds)
        try:
            sock.connect(self.path)
        except OSError as error:
            sock.close()
            raise _unreachable(self.path, error) from error
        return sock


def _request(method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None) -> bytes:
    asked = "&".join(f"{quote(name)}={quote(_text(value), safe='')}" for name, value in query.items())
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{method} {path}{'?' + asked if asked else ''} HTTP/1.1",
        "Host: engine",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return value if isinstance(value, str) else json.dumps(value)


def _answer(sock: socket.socket, wait: Callable[[], bool]) -> tuple[int, bytes]:
    data = bytearray()
    while wait():
        part = sock.recv(_CHUNK)
        if not part:
            break
        data += part
        if len(data) > _MOST:
            raise OSError("it answers without end")
    else:
        raise TimeoutError("timed out")
    head, _, content = bytes(data).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split()
    if len(words) < 2 or not words[1].isdigit():
        raise OSError("it does not speak HTTP" if data else "it hung up without an answer")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    return int(words[1]), _joined(content) if chunked else content


def _joined(chunked: bytes) -> bytes:
    """The content of an answer that came in pieces."""
    found = bytearray()
    rest = chunked
    with contextlib.suppress(ValueError):
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size.partition(b";")[0], 16)
            if length == 0:
                break
            found += rest[:length]
            rest = rest[length + 2 :]
    return bytes(found)


def _unreachable(path: str, error: OSError) -> Unreachable:
    if isinstance(error, PermissionError):
        return Unreachable(
            f"This user may not talk to the container engine at {path}.",
            "Run: sudo usermod -aG docker $USER, and log in again; or use rootless Podman.",
        )
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return Unreachable(
            f"The container engine is not running: nobody listens at {path}.",
            "Run: systemctl start docker (or, where there is no systemd: dockerd &).",
        )
    return Unreachable(
        f"The container engine at {path} does not answer: {error.strerror or error}.", "Run: systemctl restart docker"
    )
