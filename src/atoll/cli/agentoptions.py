"""The options of the commands that set an agent to work."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from ..errors import InvalidInput
from .options import packages_of
from .parsing import Parser, UsageError
from .values import duration, number, whole_number

LIMITS = {
    "max_iterations": ("COUNT", "how often the model is asked (default: 10, at most 50)"),
    "max_cost": ("DOLLARS", "what it may cost (default: 2.00, at most 10.00)"),
    "token_budget": ("COUNT", "tokens, those of helpers too (default: 8000 for ask, 50000 for agent)"),
    "max_tool_calls": ("COUNT", "calls that the model may make (default: 50)"),
    "max_subcalls": ("COUNT", "calls that code may make of models (default: 12)"),
    "max_depth": ("COUNT", "how deep helpers of helpers may be (default: 4, at most 5)"),
    "step_timeout": ("TIME", "for one cell or command (default: 30, at most 10m)"),
    "concurrency": ("COUNT", "calls of models at once (default: 8)"),
}


def add_agent_options(parser: Parser) -> None:
    """What decides how an agent works."""
    add = parser.add_argument
    add("-m", "--model", metavar="NAME", help="such as openai/gpt-4o-mini (default: $ATOLL_MODEL, or atoll.toml)")
    add("--base-url", metavar="URL", help="of a server that speaks as OpenAI's does")
    add(
        "--context",
        metavar="FILE",
        help="what it is about, as a variable in the sandbox; - is standard input",
    )
    add("--system", metavar="TEXT", help="more for the first message, such as how to answer")
    add(
        "--validate",
        metavar="COMMAND",
        help="what an answer must pass, in a copy of the sandbox; it is on stdin",
    )
    add("--validate-code", metavar="CODE", help="the same with Python, where it is the variable `answer`")
    add("--mcp-config", metavar="FILE", help="JSON with mcpServers, whose tools the model may call")
    add("--config", metavar="FILE", help="an atoll.toml to read, instead of the one that is found")
    group = parser.add_argument_group("the sandbox").add_argument
    group("-p", "--driver", metavar="NAME", help="the wall (default: jail)")
    group("--source", metavar="DIR", help="start with the files of DIR; nothing reaches DIR but by `atoll apply`")
    group("--preset", metavar="NAME", help="what it may do with these files (default: agent-safe)")
    group("--packages", metavar="NAMES", action="append", default=[], help="Python packages to have, such as pandas")
    group("--network", metavar="KIND", help="none (default), all, or host")
    group("--memory", metavar="SIZE", help="limit such as 512M or 2G")
    group("--sandbox", metavar="ID", help="work in a sandbox that exists, instead of one of its own")
    group("--keep", action="store_true", default=None, help="let the sandbox stay (default with --source)")
    _add_limits(parser)


def add_resuming_options(parser: Parser) -> None:
    """What may be another when a run goes on."""
    add = parser.add_argument_group("an agent's run").add_argument
    add("--at", metavar="STEP", help="branch off after this step; 0 is the beginning")
    add("--say", metavar="TEXT", help="with --at: something to tell the model there")
    add("-m", "--model", metavar="NAME", help="go on with another model")
    add("--base-url", metavar="URL", help="of another server")
    add("--keep", action="store_true", default=None, help="let the sandbox stay at the end")
    add("--mcp-config", metavar="FILE", help="JSON with mcpServers, whose tools the model may call")
    add("--config", metavar="FILE", help="an atoll.toml to read, instead of the one that is found")
    _add_limits(parser)


def changes_of(args: Namespace) -> dict[str, Any]:
    """What `add_resuming_options` found, for `resume` and `fork`. Raises InvalidInput."""
    found = {"model": args.model, "base_url": args.base_url, "keep": args.keep}
    found |= {name: _limit(name, getattr(args, name)) for name in LIMITS}
    return {name: value for name, value in found.items() if value is not None}


def _add_limits(parser: Parser) -> None:
    add = parser.add_argument_group("limits").add_argument
    for name, (metavar, about) in LIMITS.items():
        add(f"--{name.replace('_', '-')}", metavar=metavar, help=about)


def add_showing_options(parser: Parser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="show the answer alone")
    parser.add_argument("--json", action="store_true", help="print all that came of it as a JSON object")


def agent_options(args: Namespace) -> dict[str, Any]:
    """The keywords for `AsyncAgent`. Raises InvalidInput, UsageError."""
    found: dict[str, Any] = {
        "model": args.model, "base_url": args.base_url, "system": args.system, "config": args.config,
        "validate": _check(args), "mcp_servers": _servers(args.mcp_config), "sandbox": _sandbox(args),
        "keep": args.keep,
    }  # fmt: skip
    found |= {name: _limit(name, getattr(args, name)) for name in LIMITS}
    return {name: value for name, value in found.items() if value is not None}


def context_of(args: Namespace) -> str | None:
    """What --context names. Raises InvalidInput for what is no text."""
    if args.context is None:
        return None
    try:
        if args.context == "-":
            import sys

            return sys.stdin.buffer.read().decode()
        with open(args.context, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{args.context} is no UTF-8 text: {error.reason} at byte {error.start}.") from None


def servers_of(args: Namespace) -> dict[str, Any]:
    """The keywords for an agent that only goes on. Raises InvalidInput."""
    found = {"config": args.config, "mcp_servers": _servers(args.mcp_config)}
    return {name: value for name, value in found.items() if value is not None}


def _check(args: Namespace) -> Any:
    if args.validate is not None and args.validate_code is not None:
        raise UsageError("Give --validate or --validate-code, not both.")
    return {"code": args.validate_code} if args.validate_code is not None else args.validate


def _sandbox(args: Namespace) -> Any:
    wishes = {name: getattr(args, name) for name in ("driver", "source", "network") if getattr(args, name) is not None}
    if args.preset is not None:
        if args.source is None:
            raise UsageError("--preset is for the files of --source, and there are none.")
        wishes["preset"] = args.preset
    if args.packages:
        wishes["packages"] = packages_of(args.packages)
    if args.memory is not None:
        wishes["resources"] = {"memory": args.memory}
    if args.sandbox is None:
        return wishes or None
    if wishes:
        raise UsageError(f"The sandbox {args.sandbox} exists already; leave out {', '.join(wishes)}.")
    from .places import find

    return find(args.sandbox).id


def _servers(path: str | None) -> Any:
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:
            raise InvalidInput(f"{path} is no JSON: {error}.") from None
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise InvalidInput(f'{path} has no servers; write {{"mcpServers": {{"name": {{"command": "…"}}}}}}.')
    return servers


def _limit(name: str, text: str | None) -> float | int | None:
    if text is None:
        return None
    option = f"--{name.replace('_', '-')}"
    if name == "step_timeout":
        return duration(text, option)
    return number(text, option) if name == "max_cost" else whole_number(text, option)
