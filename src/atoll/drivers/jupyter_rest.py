"""A Jupyter server as its REST interface shows it. Every error says what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from ..engine.steward.wall import StartFailed
from ..errors import InvalidInput
from ..http import address as http

URL, TOKEN = "ATOLL_JUPYTER_URL", "ATOLL_JUPYTER_TOKEN"  # a variable's name
_SECONDS = 30.0
_MOST = 8 << 20


class Address(NamedTuple):
    """Where a server is. The token is for nobody's eyes."""

    scheme: str
    host: str
    port: int
    base: str
    token: str

    @classmethod
    def parse(cls, url: str, token: str) -> Address:
        """Of a URL as servers print it, which may have the token in it. Raises InvalidInput."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts, port = urlsplit(""), 0
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(
                f"{URL} is no address of a Jupyter server.", hint="Give it something like http://127.0.0.1:8888/."
            )
        found = parse_qs(parts.query).get("token", [""])[0]
        base = parts.path.rstrip("/")
        for page in ("/lab", "/tree"):
            base = base.removesuffix(page)
        return cls(parts.scheme, parts.hostname, port, base, token or found)

    @property
    def server(self) -> http.Address:
        return http.Address(self.scheme, self.host, self.port)

    @property
    def shown(self) -> str:
        """Without the token."""
        return f"{self.scheme}://{self.host}:{self.port}{self.base}/"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"} if self.token else {}


def ask(address: Address, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """One question; None for an answer without content. Blocks.

    Raises:
        StartFailed: it was not answered, or with a refusal; `hint` says what to do.
    """
    from ..http.client import Lost, TooLarge, ask as ask_server

    headers = {**address.headers, "Content-Type": "application/json"}
    content = json.dumps(body).encode() if body is not None else None
    target = f"{address.base}/api/{path}"
    try:
        answer = ask_server(address.server, method, target, headers, content, within=_SECONDS, most=_MOST)
    except (Lost, TooLarge) as error:
        raise StartFailed(
            f"No Jupyter server answers at {address.shown}: {error}",
            "wall_unavailable",
            f"Start one, as with `jupyter server --port {address.port}`, or set {URL} to the address of one.",
        ) from None
    if answer.status >= 300:
        raise _refused(address, answer.status, answer.body)
    try:
        return json.loads(answer.body) if answer.body else None
    except ValueError:
        raise StartFailed(
            f"What answers at {address.shown} is no Jupyter server.",
            "wall_unavailable",
            f"Set {URL} to the address of one; `jupyter server list` shows those of this machine.",
        ) from None


def _refused(address: Address, status: int, content: bytes) -> StartFailed:
    if status in (401, 403) or 300 <= status < 400:
        return StartFailed(
            f"The Jupyter server at {address.shown} does not accept the token.",
            "wall_unavailable",
            f"Set {TOKEN} to the token of that server; `jupyter server list` shows it on its machine.",
        )
    if status == 404:
        return StartFailed(
            f"What answers at {address.shown} is no Jupyter server, or has another base URL.",
            "wall_unavailable",
            f"Set {URL} to its address as `jupyter server list` shows it.",
        )
    try:
        reason = str(json.loads(content).get("message"))
    except (ValueError, AttributeError):
        reason = content[:200].decode("utf-8", "replace")
    return StartFailed(f"The Jupyter server at {address.shown} answers with {status}: {reason[:500]}.")


def kernels(address: Address) -> dict[str, str]:
    """The languages of all kernels of a server, by the kernels' names. Raises StartFailed."""
    answer = ask(address, "GET", "kernelspecs")
    specs = answer.get("kernelspecs") if isinstance(answer, dict) else None
    if not isinstance(specs, dict):
        raise StartFailed(f"The Jupyter server at {address.shown} tells of no kernels.", "wall_unavailable")
    return {name: str(entry.get("spec", {}).get("language", "")).lower() for name, entry in specs.items()}


def start(address: Address, kernel: str) -> str:
    """Have a kernel started; its id. Raises StartFailed."""
    answer = ask(address, "POST", "kernels", {"name": kernel})
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
        raise StartFailed(f"The Jupyter server at {address.shown} started no kernel.")
    return str(answer["id"])


def end(address: Address, kernel: str) -> None:
    """End a kernel. One that is gone is gone. Raises StartFailed."""
    ask(address, "DELETE", f"kernels/{quote(kernel, safe='')}")
