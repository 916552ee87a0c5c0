"""`atoll mcp-serve`: sandboxes for MCP clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parsing import Parser, UsageError

if TYPE_CHECKING:
    from ..mcp.server import Server

_DESCRIPTION = """\
Serve sandboxes as tools to an MCP client, on standard input and output, or
over HTTP. A session is a sandbox that outlives the server; `atoll list` shows
them. Nothing of this machine is visible inside, and nothing reaches it.
"""

_EPILOG = """\
examples:
  atoll mcp-serve                                  for a client that starts it
  atoll mcp-serve --packages pandas,matplotlib --memory 2G
  atoll mcp-serve --allow-source . --allow-apply   over this directory
  atoll mcp-serve --http 8080                      on 127.0.0.1, with a token

`atoll mcp-install --client claude-code` writes the client's configuration.
"""


def main(words: list[str]) -> int:
    parser = Parser("mcp-serve", "[OPTIONS]", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("--http", metavar="[HOST:]PORT", help="serve streamable HTTP there, at /mcp, instead of standard input")
    add("--token", metavar="TOKEN", help="what HTTP clients must send as bearer token (default: $ATOLL_MCP_TOKEN, or "
        "one that is made up and printed). Others on this machine see it in the list of processes: "
        "prefer the variable")  # fmt: skip
    add("--no-token", action="store_true", help="ask HTTP clients for none; only on a loopback address")
    add("--allow-origin", metavar="ORIGIN", action="append", default=[],
        help="let web pages of this origin use the HTTP server; may be repeated")  # fmt: skip
    add("--allow-host", metavar="HOST", action="append", default=[],
        help="a name that HTTP clients may call this machine by; may be repeated")  # fmt: skip
    add("--space", metavar="NAME", help="which sessions are seen: those of servers with the same space "
        "(default: the directory that this is started in)")  # fmt: skip
    add("--allow-source", metavar="DIR", action="append", default=[],
        help="let sessions begin with DIR or a directory below it; it is never changed; may be repeated")  # fmt: skip
    add("--allow-apply", action="store_true", help="let `apply` take over changes of a session into its directory")
    add("--no-install", action="store_true", help="no `install_packages`: sessions ask the package index for nothing")
    add("--max-output", metavar="COUNT", default="100000", help="characters of text in one answer (default: 100000)")
    add("--max-sessions", metavar="COUNT", default="32", help="sessions at once (default: 32)")
    add("--with-echo", action="store_true", help="offer the tool `echo`, for measuring")
    group = parser.add_argument_group("new sessions").add_argument
    group("-p", "--driver", metavar="NAME", help="the wall; `atoll providers` lists them (default: jail)")
    group("--lifetime", metavar="TIME", default="8h", help="how long one lives after its last use (default: 8h)")
    group("--packages", metavar="NAMES", action="append", default=[], help="Python packages to have; may be repeated")
    group("--network", metavar="KIND", help="none (default), all, or host for sharing this machine's")
    group("--memory", metavar="SIZE", help="limit such as 512M or 2G (default: 512M)")
    group("--cpu", metavar="CORES", help="limit such as 0.5 or 2 (default: no limit)")
    group("--pids", metavar="COUNT", help="limit on processes and threads (default: 256)")
    group("--disk", metavar="SIZE", help="limit on what is written (default: 1G)")
    group("--image", metavar="IMAGE", help="a root file system: a directory or tar, or a name that the driver knows")
    group("--preset", metavar="NAME", help="what sessions see of a source (default: agent-safe)")
    args = parser.parse_args(words)
    if args.http is None:
        for name in ("token", "no_token", "allow_origin", "allow_host"):
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')} is for --http; standard input has one client only.")
    return _serve(args)


def _serve(args: object) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from ..mcp.server import Server
    from .mcp_settings import settings_of

    settings = settings_of(args)
    server = Server(settings)
    _say_what_is_left_out(server)
    if args.http is None:  # type: ignore[attr-defined]  # a Namespace
        import os

        from ..mcp.stdio import serve

        if os.isatty(0):
            from .output import complain

            complain("waiting for an MCP client on standard input; `atoll mcp-install --help` says how to get one.")
        return serve(server)
    from .mcp_http import serve_http

    return serve_http(args, server)


def _say_what_is_left_out(server: Server) -> None:
    """To the owner, on stderr; clients have their own answers."""
    from .output import complain

    ground = server.ground
    if ground.programs:
        return
    from ..errors import AtollError
    from ..mcp.agents import programs

    try:
        missing = programs()
    except AtollError:
        missing = []  # a configuration that is wrong is told by the run that needs it
    if missing:
        complain(
            f"agent_run leaves out the MCP servers {', '.join(missing)}: they are programs, and with --allow-apply "
            "sessions may change what those load. Servers with a `url` stay."
        )
    for place in ground.imported:
        complain(
            f"agent_run is refused: this Python imports from {place}, which sessions may change. Install atoll apart."
        )
    for place in ground.guarded:
        complain(f"apply leaves out {place}, which this server needs itself.")
