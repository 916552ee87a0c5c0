"""`atoll list`: the sandboxes that exist."""

from __future__ import annotations

import os
import time
from typing import Any

from ..sync.sandbox import Sandbox
from ..types import Info
from .options import add_driver_option
from .output import STDERR, colourful, complain, paint, say, say_json, table
from .parsing import Parser
from .values import labels

_DESCRIPTION = """\
The sandboxes of this user, newest first, as they stand now. One that has ended
by itself, at the end of its lifetime for instance, is told of once, with the
reason.
"""

_EPILOG = """\
examples:
  atoll list
  atoll list -l project=docs --status running
  atoll list --json | jq -r '.[].id'
  atoll destroy $(atoll list -q -l project=docs)
"""

_COLOURS = {"running": "green", "paused": "yellow", "stopped": "yellow", "creating": "yellow", "gone": "red"}
_HEADER = ["ID", "WALL", "STATUS", "AGE", "EXPIRES", "LABELS"]


def main(words: list[str]) -> int:
    parser = Parser("list", "[OPTIONS]", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("-l", "--label", metavar="KEY=VALUE", action="append", default=[], help="only those with this label")
    add("--status", metavar="STATUS", help="only these: creating, running, paused, stopped or gone")
    add_driver_option(parser, "only those behind this wall")
    add("-q", "--quiet", action="store_true", help="only the ids, one a line")
    add("--json", action="store_true", help="everything, as a JSON list")
    args = parser.parse_args(words)
    found = Sandbox.list(labels(args.label), driver=args.driver, status=args.status)
    if args.json:
        say_json([_as_json(info) for info in found])
    elif args.quiet:
        for info in found:
            say(info.id)
    else:
        _say_table(found)
    return 0


def _say_table(found: list[Info]) -> None:
    if not found and os.isatty(STDERR):
        complain(
            'There are none; `atoll run --keep "echo hi"` makes one that stays, `atoll --help` lists the commands.'
        )
        return
    now = time.time()
    colours = colourful()
    rows = [_HEADER, *(_row(info, now) for info in found)]
    head, *lines = table(rows, _COLOURS, colours=colours)
    say(paint(head, "bold", wanted=colours))
    for line in lines:
        say(line)


def _row(info: Info, now: float) -> list[str]:
    note = f"  ({info.reason})" if info.reason else ""
    expires = "never" if info.expires is None else _left(info.expires - now)
    worn = ",".join(f"{key}={value}" for key, value in info.labels.items()) or "-"
    return [info.id, info.driver, info.status, span(now - info.created), expires, worn + note]


def _left(seconds: float) -> str:
    return f"in {span(seconds)}" if seconds > 0 else "-"


def span(seconds: float) -> str:
    """A time in its largest unit, as 42s, 5m, 3h or 2d."""
    count = max(int(seconds), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if count >= size:
            return f"{count // size}{unit}"
    return f"{count}s"


def _as_json(info: Info) -> dict[str, Any]:
    spec = info.spec
    return {
        "id": info.id,
        "driver": info.driver,
        "status": info.status,
        "reason": info.reason,
        "labels": dict(info.labels),
        "created": info.created,
        "expires": info.expires,
        "image": spec.image,
        "source": spec.source,
        "network": spec.network,
        "workdir": spec.workdir,
        "packages": list(spec.packages),
        "resources": spec.resources._asdict(),
        "limits": dict(info.limits),
        "walls": list(info.walls),
    }
