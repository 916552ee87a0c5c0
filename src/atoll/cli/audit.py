"""`atoll audit`: which accesses were refused to a sandbox."""

from __future__ import annotations

import datetime as dt
import json
import time

from ..client.auditing import Denials
from ..errors import InvalidInput, SandboxGone
from ..sync.sandbox import Sandbox
from ..types import Denial
from .interrupts import Interrupts
from .output import complain, say, visible
from .parsing import Parser, UsageError
from .places import find
from .values import duration

_DESCRIPTION = """\
Which accesses were refused to a sandbox, oldest first: when, who noticed, what
was tried, and on which path. "files" is the file API, as in `atoll cp`, "gate"
the review before changes reach the source, and "kernel" the kernel, which
tells only of sandboxes that root made with audit=True.
"""

_EPILOG = """\
examples:
  atoll audit sb-k3                       the beginning of an id is enough
  atoll audit sb-k3 --since 10m
  atoll audit sb-k3 --since 2026-01-31T12:00 --json
  atoll audit sb-k3 --follow              until Ctrl-C, or the sandbox's end
"""

_TURN = 0.25
_LATE = 5.0


def main(words: list[str]) -> int:
    parser = Parser("audit", "[OPTIONS] ID", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="a sandbox, or the beginning of its id")
    add("--since", metavar="TIME", help="only what came after: a moment as 2026-01-31T12:00, or so long ago as 10m")
    add("--follow", action="store_true", help="go on with those to come")
    add("--json", action="store_true", help="as a JSON list; with --follow as one object a line")
    args = parser.parse_intermixed_args(words)
    if len(args.ids) != 1:
        raise UsageError("Say which sandbox, by its id; `atoll list` shows them.")
    since = None if args.since is None else moment(args.since, time.time())
    sandbox = find(args.ids[0])
    if args.follow:
        _follow(sandbox, since, as_json=args.json)
        return 0
    found = sandbox.audit(since=since)
    if args.json:
        say(json.dumps([each._asdict() for each in found], indent=2))
    else:
        for each in found:
            say(_line(each))
    _tell_dropped(found)
    return 0


def moment(text: str, now: float) -> float:
    """Seconds as of `time.time`, from `10m` before `now`, or from `2026-01-31T12:00` of the local clock.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return now - duration(text, "--since")
    except InvalidInput:
        raise InvalidInput(f"--since is {text!r}; give a moment as 2026-01-31T12:00, or a time such as 10m.") from None


def _follow(sandbox: Sandbox, since: float | None, *, as_json: bool) -> None:
    """Those that are there and those to come. What the kernel tells may be told a little late."""
    Interrupts()
    told: set[Denial] = set()
    try:
        while True:
            found = sandbox.audit(since=since)
            for each in found:
                if each not in told:
                    say(json.dumps(each._asdict()) if as_json else _line(each))
            told = set(found)
            if found:
                since = max(since or 0.0, found[-1].time - _LATE)
            time.sleep(_TURN)
    except SandboxGone:
        return


def _line(denial: Denial) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(denial.time)) + f".{int(denial.time % 1 * 1000):03}"
    columns = [when, denial.source.ljust(6), denial.operation.ljust(8), visible(denial.path or ".")]
    return "  ".join(columns if denial.process is None else [*columns, f"({visible(denial.process)})"])


def _tell_dropped(found: Denials) -> None:
    if found.dropped:
        complain(f"{found.dropped} more are not in the list: they came too fast, or others came after them.")
