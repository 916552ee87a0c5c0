"""Addresses of HTTP servers, and the proxy that the environment names for one. Loads no socket."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ..errors import InvalidInput


class Address(NamedTuple):
    """With the scheme "unix" `host` is the path of a socket."""

    scheme: str
    host: str
    port: int = 0
    path: str = ""

    @property
    def is_loopback(self) -> bool:
        is_number = self.host.startswith("127.") and self.host.replace(".", "").isdigit()
        return is_number or self.host in ("localhost", "::1")

    @property
    def netloc(self) -> str:
        """As the header Host has it."""
        if self.scheme == "unix":
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == default_port(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"


def default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


class Proxy(NamedTuple):
    host: str
    port: int
    authorization: str | None

    def __repr__(self) -> str:
        return f"<proxy {self.host}:{self.port}>"


def find_proxy(address: Address) -> Proxy | None:
    """What HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY say. The loopback has no proxy: a key for it would leave the
    machine in clear.

    Raises: InvalidInput for a proxy that is no http:// URL.
    """
    if address.is_loopback or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib import request

    found = request.getproxies_environment()
    if request.proxy_bypass_environment(f"{address.host}:{address.port}", found):  # type: ignore[attr-defined]  # typeshed does not know it
        return None
    for name in (address.scheme, "all"):
        if text := found.get(name, "").strip():
            return _parse(text, f"{name.upper()}_PROXY")
    return None


def _parse(text: str, name: str) -> Proxy:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme != "http" or not host.isascii() or not host.isprintable():
        # It may have a password, so it is not shown.
        raise InvalidInput(f"${name} should be a URL such as http://proxy.example.com:3128.")
    if parts.username is None:
        return Proxy(host, port or 80, None)
    import base64

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port or 80, f"Basic {base64.b64encode(pair.encode()).decode()}")
