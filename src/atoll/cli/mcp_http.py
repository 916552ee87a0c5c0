"""`atoll mcp-serve --http`: where to listen, and who may ask."""

from __future__ import annotations

import os
from typing import Any

from ..mcp.gate import Gate, is_address, is_loopback
from ..mcp.http import PATH, HttpServer
from ..mcp.server import Server
from .output import complain
from .parsing import UsageError

_SHORTEST_TOKEN = 16


def serve_http(args: Any, server: Server) -> int:
    """Serve until a signal comes. Raises UsageError."""
    host, port = _place(args.http)
    token, made_up = _token(args, host)
    gate = Gate(host, token, tuple(name.lower() for name in args.allow_host), tuple(args.allow_origin))
    try:
        listening = HttpServer(server, gate, port)
    except OSError as error:
        raise UsageError(f"--http {args.http}: {error.strerror or error}.") from error
    shown = f"[{host}]" if ":" in host else host
    complain(f"listening on http://{shown}:{listening.port}{PATH}")
    if made_up:
        complain(f"the token, made up for this run: {token}")
    listening.serve()
    return 0


def _place(given: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    if not port.isdecimal() or not port.isascii() or len(port) > 5 or int(port) > 65535:
        raise UsageError(
            f"--http is {given!r}; give a port such as 8080, or an address and a port as in 127.0.0.1:8080."
        )
    if host == "localhost":
        host = "127.0.0.1"
    if not is_address(host):
        raise UsageError(f"--http is {given!r}; give the address to listen on as numbers, such as 127.0.0.1.")
    return host, int(port)


def _token(args: Any, host: str) -> tuple[str | None, bool]:
    """The token, None for none; and whether it was made up here."""
    given: str | None = args.token or os.environ.get("ATOLL_MCP_TOKEN") or None
    if args.no_token:
        if args.token:
            raise UsageError("--no-token and --token exclude each other.")
        if not is_loopback(host):
            raise UsageError("--no-token is for a loopback address only: anybody who reaches this one could run code.")
        return None, False
    if given is None:
        return os.urandom(24).hex(), True
    if len(given) < _SHORTEST_TOKEN or not given.isascii() or not given.isprintable() or " " in given:
        # Without the token itself: this sentence ends up in logs.
        raise UsageError(
            f"The token is too short or holds spaces; give {_SHORTEST_TOKEN} printable characters or more."
        )
    return given, False
