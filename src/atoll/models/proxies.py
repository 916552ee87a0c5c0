"""Which proxy stands between here and a host, as the environment says: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY.

Pure. The standard library has the same in urllib.request, whose import is half of what a first call costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from ..errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .endpoint import Address


class Proxy(NamedTuple):
    host: str
    port: int
    authorization: str | None

    def __repr__(self) -> str:
        return f"<proxy {self.host}:{self.port}>"


def find_proxy(address: Address, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address, or None. The loopback has none: a key for it would leave the machine in clear.

    Raises: InvalidInput for a proxy that is no http:// URL.
    """
    if address.is_loopback or _is_excepted(address, _get("no_proxy", environment)):
        return None
    names = ("https_proxy", "all_proxy") if address.scheme == "https" else ("http_proxy", "all_proxy")
    for name in names:
        if text := _get(name, environment):
            return _parse(text, name.upper())
    return None


def _get(name: str, environment: Mapping[str, str]) -> str:
    # Where a request comes from CGI, HTTP_PROXY is a header that the other side has chosen.
    upper = "" if name == "http_proxy" and "REQUEST_METHOD" in environment else environment.get(name.upper(), "")
    return (environment.get(name) or upper).strip()


def _is_excepted(address: Address, exceptions: str) -> bool:
    for exception in exceptions.lower().split(","):
        host, _, port = exception.strip().rpartition(":") if exception.count(":") == 1 else (exception.strip(), "", "")
        if port and port != str(address.port):
            continue
        bare = host.removeprefix("*").removeprefix(".")
        if host == "*" or (bare and (address.host == bare or address.host.endswith(f".{bare}"))):
            return True
    return False


def _parse(text: str, name: str) -> Proxy:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme != "http" or not host.isascii() or not host.isprintable():
        # It may have a password, so it is not shown.
        raise InvalidInput(f"${name} should be a URL such as http://proxy.example.com:3128.")
    authorization = None
    if parts.username is not None:
        import base64

        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(host, port or 80, authorization)
