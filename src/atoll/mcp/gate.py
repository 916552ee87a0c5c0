"""Who may speak to the HTTP server: the right host name, no strange web page, the token. Pure."""

from __future__ import annotations

import re
from hmac import compare_digest
from ipaddress import ip_address
from typing import NamedTuple

from .httpwire import Broken, Head

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::[0-9]{1,5})?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Gate(NamedTuple):
    """`token` is None where none is asked for. `hosts` and `origins` are those that the owner has added."""

    host: str
    token: str | None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def check_names(self, head: Head) -> str | None:
        """The origin of the page that asks, if one does.

        Raises:
            Broken: it calls us by a name that is not ours, as a page does whose name was bound to our address; or the
                page is of an origin that nobody has allowed.
        """
        host = head.fields.get("host")
        if not self._is_ours(_name_of(host or "")):
            raise Broken(421, "The Host is not one of this server's; its owner allows more with --allow-host.")
        origin = head.fields.get("origin")
        if origin is None:
            return None
        if origin not in self.origins and not self._is_local(origin):
            raise Broken(403, "Web pages of this origin may not use this server; its owner allows it with "
                         "--allow-origin.")  # fmt: skip
        return origin

    def check_token(self, head: Head) -> None:
        """Raises Broken."""
        if self.token is None:
            return
        kind, _, given = head.fields.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not compare_digest(given.strip().encode("latin-1"), self.token.encode("utf-8")):
            raise Broken(401, "The token is missing or wrong; send it as `Authorization: Bearer TOKEN`.")

    def _is_ours(self, name: str | None) -> bool:
        if name is None:
            return False
        if name in (self.host, *_LOOPBACK, *self.hosts):
            return True
        # A name may be bound to any address by its owner; an address is what it is.
        return self.host in ("0.0.0.0", "::") and is_address(name)  # noqa: S104  # compared, not bound to

    def _is_local(self, origin: str) -> bool:
        scheme, slashes, rest = origin.partition("://")
        return bool(slashes) and scheme in ("http", "https") and _name_of(rest) in _LOOPBACK


def _name_of(host: str) -> str | None:
    """The name in `name:port`, `[::1]:port` or `name`; None for anything that is not wholly one of these."""
    match = _HOST.fullmatch(host)
    return None if match is None else (match[1] or match[2]).lower()


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
