"""What the process that fetches wheels may reach on this host, whatever an index or a package tells pip.

An index can redirect pip, and a wheel can name addresses of what it needs: `file:` ones, and those of services that
only this host reaches. What is fetched goes into sandboxes, so pip reads no files but its own and what its settings
name, and asks nobody whom `network="all"` would not reach, unless a setting names him.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from ..engine import closed
from . import settings

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/etc", "/nix/store", "/gnu/store", "/dev/null", "/dev/urandom")
# How names are looked up; often links to elsewhere.
_RESOLVING = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PLACES = ("index-url", "extra-index-url", "find-links", "proxy")
_PORTS = {"http": 80, "https": 443}
_CLOSED = tuple(
    ipaddress.ip_network(each)
    for each in (*closed.METADATA4, *closed.METADATA6, *closed.LOOPBACK4, *closed.LOOPBACK6)
    if each != closed.MAPPED6
)


def readable(sources: settings.Sources) -> tuple[str, ...]:
    """The files and directories that pip needs to read: this Python's, the system's, and what settings name."""
    home = os.path.expanduser("~")
    paths = [
        *_SYSTEM, *map(os.path.realpath, _RESOLVING), sys.prefix, sys.base_prefix, *sys.path,
        *_certificates(), *map(os.environ.get, _CERTIFICATES),
        os.environ.get("NETRC") or f"{home}/.netrc", f"{home}/_netrc", *sources.shown(),
    ]  # fmt: skip
    return tuple(dict.fromkeys(path for path in paths if path and os.path.exists(path)))


def _certificates() -> tuple[str | None, ...]:
    """Where this Python's own are. One that has no TLS, or cannot load it, needs none: pip does without."""
    try:
        import ssl
    except ImportError:
        return ()
    known = ssl.get_default_verify_paths()
    return known.cafile, known.capath


def guard(sources: settings.Sources) -> None:
    """Have this process ask no closed address from now on, unless a setting names a host that has it.

    It is Python's own word about each connection, which code of pip does not avoid.
    """
    named = [place for name in _PLACES for place in sources.get(name)]
    named += settings.proxies(shown=False).values()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "socket.connect" or not isinstance(arguments[1], tuple):
            return
        host, port = arguments[1][:2]
        if is_closed(host) and (ipaddress.ip_address(host), port) not in _named(named):
            raise OSError(errno.EACCES, f"{host} port {port} is closed to installers, unless a setting of pip names it")

    sys.addaudithook(look)


def is_closed(host: str) -> bool:
    """Whether `network="all"` would not reach an address."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or ipaddress.IPv6Address(int(address))
    return any(address in network for network in _CLOSED)


def _named(places: Iterable[str]) -> set[tuple[Any, int]]:
    """The addresses and ports that places have, as far as they can be told."""
    found = set()
    for place in places:
        try:
            parts = urlsplit(place if "://" in place else f"http://{place}")
            port = parts.port or _PORTS.get(parts.scheme, 0)
            for *_, address in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM) if port else ():
                found.add((ipaddress.ip_address(address[0]), port))
        except (OSError, ValueError):  # a file, or a host that cannot be found: what asks it will say so
            continue
    return found
