"""`atoll config`: every setting of agents and where it comes from; which files are trusted."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from .. import config
from ..config import files, trust
from ..errors import InvalidInput
from .output import colourful, complain, paint, say, say_json, table
from .parsing import Parser, UsageError

_DESCRIPTION = """\
Show every setting of agents, its value, and where it comes from: an
atoll.toml here or above, the environment, or nowhere (default).
"""

_EPILOG = """\
actions:
  show             every setting (default); of keys only whether they are set
  trust [FILE]     use all that the file says, as long as it does not change
  untrust [FILE]   use only what is harmless in it

A file that was found is not believed: of one that nobody has trusted only
limits are used that are stricter than usual.

examples:
  atoll config show --json
  atoll config trust

exit code:
  0, or 125 when something is wrong with a setting
"""

KEYS = ("ATOLL_API_KEY", "OPENAI_API_KEY", "SNIPARA_API_KEY")
_HEADER = ["SETTING", "VALUE", "FROM"]
_WIDEST = 60


def main(words: list[str]) -> int:
    parser = Parser("config", "[show] [--json] | trust [FILE] | untrust [FILE]", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("action", nargs="?", default="show", metavar="ACTION", help="what to do; see below")
    add("file", nargs="?", metavar="FILE", help="trust, untrust: the file (default: the one that is found from here)")
    add("--config", metavar="FILE", help="show: read this file, and trust it")
    add("--json", action="store_true", help="show: as JSON")
    args = parser.parse_intermixed_args(words)
    action = _ACTIONS.get(args.action)
    if action is None:
        raise UsageError(f"There is no action {args.action!r}; say one of {', '.join(_ACTIONS)}.")
    return action(args)


def _show(args: Namespace) -> int:
    if args.file is not None:
        raise UsageError("Write it as `atoll config show --config FILE`.")
    settings = config.load(path=args.config)
    for warning in settings.warnings:
        complain(warning)
    rows = [config.Setting(each.name, _shown(each), each.source) for each in settings.items()]
    keys = {name: "set" if os.environ.get(name, "").strip() else "not set" for name in KEYS}
    if args.json:
        values = {each.name: {"value": each.value, "source": each.source} for each in rows}
        say_json({"settings": values, "keys": keys, "warnings": settings.warnings})
        return 0
    lines = [[each.name, _told(each), each.source] for each in rows]
    lines += [[name, state, "environment" if state == "set" else "-"] for name, state in keys.items()]
    head, *rest = table([_HEADER, *lines], {}, colours=False)
    say(paint(head, "bold", wanted=colourful()))
    for line in rest:
        say(line)
    return 0


def _shown(setting: config.Setting) -> Any:
    """Without what may be secret."""
    if setting.name == "mcp_servers":
        from ..config.servers import described

        return described(setting.value)
    return list(setting.value) if isinstance(setting.value, tuple) else setting.value


def _told(setting: config.Setting) -> str:
    """What holds, also where the setting leaves it open."""
    if setting.name == "max_cost":
        from ..models import prices

        if not prices.are_known():
            return f"{_cell(setting.value)} (not held: no prices; pip install 'atoll[prices]')"
    if setting.value is None and setting.name == "driver":
        from ..registry import default_name

        return default_name()
    if setting.value is None and setting.name == "memory":
        from ..policy.sizes import format_size
        from ..types import Resources

        return format_size(Resources().memory)
    return _cell(setting.value)


def _cell(value: Any) -> str:
    from .output import visible

    if value is None or value in ([], {}):
        return "-"
    text = ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
    text = visible(text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _trust(args: Namespace) -> int:
    say(trust.trust(_chosen(args)))
    return 0


def _untrust(args: Namespace) -> int:
    path = _chosen(args)
    if not trust.untrust(path):
        complain(f"{path} was not trusted.")
    say(os.path.realpath(path))
    return 0


def _chosen(args: Namespace) -> str:
    if args.json or args.config is not None:
        raise UsageError(f"Write it as `atoll config {args.action} [FILE]`.")
    if args.file is not None:
        return os.path.join(args.file, files.NAME) if os.path.isdir(args.file) else str(args.file)
    found = files.find(os.getcwd())
    if found is None:
        raise InvalidInput(f"There is no {files.NAME} here or above.", hint="`atoll init` writes one.")
    return found


_ACTIONS: dict[str, Callable[[Namespace], int]] = {"show": _show, "trust": _trust, "untrust": _untrust}
