"""`atoll mcp-install`: write the configuration of an MCP client."""

from __future__ import annotations

import os
import sys

from .output import say
from .parsing import Parser, UsageError, split

_DESCRIPTION = """\
Tell an MCP client of `atoll mcp-serve`. Other entries of its configuration stay
as they are; the old file is kept beside the new one. What follows `--` are
options for the server.
"""

_EPILOG = """\
examples:
  atoll mcp-install --client claude-code
  atoll mcp-install --client cursor --scope project --dry-run
  atoll mcp-install --client vscode -- --packages pandas,matplotlib --memory 2G

clients: claude-code, claude-desktop, cursor, vscode
"""

_NOT_FOR_CLIENTS = ("--http", "--token", "--no-token")


def main(words: list[str]) -> int:
    own, options = split(words)
    parser = Parser("mcp-install", "--client NAME [OPTIONS] [-- SERVER-OPTIONS]", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("--client", metavar="NAME", required=True, help="whose configuration; see below")
    add("--scope", metavar="SCOPE", default="user", help="user (default), or project for this directory only")
    add("--name", metavar="NAME", default="atoll", help="what the client calls the server (default: atoll)")
    add("--dry-run", action="store_true", help="show what would change, and change nothing")
    args = parser.parse_args(own)
    return _install(args.client, args.scope, args.name, options or [], dry=args.dry_run)


def _install(client: str, scope: str, name: str, options: list[str], *, dry: bool) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from ..mcp import clients, configfile

    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    place = clients.place_of(client, scope, home, os.getcwd(), sys.platform, config)
    server = clients.entry(place, _command(options))
    clients.check_name(name)

    def change(text: str) -> str:
        return clients.merged(text, place, name, server)

    if dry:
        before = configfile.read(place.path).text
        after = change(before)
        say(_difference(place.path, before, after) if after != before else f"{place.path} has it already.")
        return 0
    changed, backup = configfile.update(place.path, change)
    if not changed:
        say(f"{place.path} has it already.")
        return 0
    say(f"{place.path} has the server {name!r} now." + (f" What it was is in {backup}." if backup else ""))
    say(_has(options))
    return 0


def _has(options: list[str]) -> str:
    """What its sessions will have, as a model that uses them is told, and how to give them more."""
    given = {option.split("=")[0] for option in options}
    network = "the network that you gave them" if "--network" in given else "no network"
    packages = "your packages" if "--packages" in given else "Python's standard library"
    more = "" if "--packages" in given else "; `-- --packages pandas,matplotlib` gives them some from the start"
    return f"Its sessions have {network} and {packages}; the tool install_packages adds others{more}."


def _command(options: list[str]) -> list[str]:
    """How a client starts the server: by paths that do not depend on where, or from which shell."""
    for option in options:
        if option.split("=")[0] in _NOT_FOR_CLIENTS:
            raise UsageError(f"{option.split('=')[0]} is for a server that you start yourself; leave it out.")
    beside = os.path.join(os.path.dirname(sys.executable), "atoll")
    # -P: clients start it in the directory of a project, which may hold an atoll.py of its own.
    start = [beside] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "atoll"]
    return [*start, "mcp-serve", *options]


def _difference(path: str, before: str, after: str) -> str:
    from difflib import unified_diff

    old = before.splitlines(keepends=True)
    lines = unified_diff(old, after.splitlines(keepends=True), path if before else "/dev/null", path)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).rstrip("\n")
