"""`atoll codebase`: stored source trees, which many sandboxes can use at once."""

from __future__ import annotations

import time
from argparse import Namespace

from ..errors import AtollError, FilePresent
from ..policy.sizes import format_size
from ..sync.codebases import Codebases
from ..types import Codebase, Upload
from . import FAILED
from .counting import Counting
from .list import span
from .output import colourful, complain, paint, say, say_json, table, visible
from .parsing import Parser, UsageError

_DESCRIPTION = """\
Source trees that are stored here, each in versions that never change. Sandboxes
use one without copying it, and many can use the same one.

actions:
  create NAME [DIR]       a new one, empty or with what is in DIR
  upload NAME [DIR]       what is in DIR (or here) is its next version
  download NAME DIR       write its files to DIR
  list                    all of them, newest first
  show NAME               what one is, and with --files what is in it
  delete NAME ...         remove them

NAME is a name, owner/name, an id, or the beginning of an id.
"""

_EPILOG = """\
examples:
  atoll codebase create my-project . --ignore node_modules/ --ignore '*.log'
  atoll codebase upload my-project
  atoll codebase download my-project copy
  atoll codebase show my-project --files
  atoll codebase list --owner ann --json
"""

_HEADER = ["ID", "NAME", "OWNER", "VERSION", "FILES", "SIZE", "UPDATED"]
_NAMED = 5


def main(words: list[str]) -> int:
    parser = Parser("codebase", "ACTION ...", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("action", metavar="ACTION", help="create, upload, download, list, show or delete")
    add("names", nargs="*", metavar="NAME", help="a codebase, and for some actions a directory after it")
    add("--owner", metavar="OWNER", help="create: whose it is; list: only theirs")
    add("--ignore", metavar="PATTERN", action="append", default=[],
        help="create, upload: leave out what fits, as in a .gitignore")  # fmt: skip
    add("--ignore-from", metavar="FILE", help="create, upload: patterns from a file such as .gitignore")
    add("--at", metavar="PATH", default="", help="upload: to this directory of the codebase")
    add("--keep", action="store_true", help="upload: what is not in DIR stays")
    add("--version", metavar="N", type=int, help="download, show: an older version that is still in use")
    add("-f", "--force", action="store_true", help="download: replace files in a directory that is there")
    add("--files", action="store_true", help="show: everything that is in it")
    add("--json", action="store_true", help="all but download: for programs")
    args = parser.parse_intermixed_args(words)
    action = _ACTIONS.get(args.action)
    if action is None:
        raise UsageError(f"There is no action {args.action!r}; say create, upload, download, list, show or delete.")
    run, fewest, most, options = action
    if not fewest <= len(args.names) <= most:
        raise UsageError(f"`atoll codebase {args.action}` takes {_WORDS[args.action]}.")
    for option in _GIVEN:
        if option not in options and getattr(args, option) != parser.get_default(option):
            raise UsageError(f"--{option.replace('_', '-')} is not for `atoll codebase {args.action}`.")
    return run(args)


def _create(args: Namespace) -> int:
    name, *directory = args.names
    with Counting("read") as counting:
        made = Codebases().create(
            name, *directory, owner=args.owner, ignore=_patterns(args), on_progress=counting.callback
        )
    if args.json:
        say_json(made._asdict())
    else:
        say(made.id)
    return 0


def _upload(args: Namespace) -> int:
    name, directory = [*args.names, "."][:2]
    with Counting("read") as counting:
        done = Codebases().upload(
            name, directory, ignore=_patterns(args), delete=not args.keep, at=args.at, on_progress=counting.callback
        )
    if args.json:
        say_json(done._asdict())
        return 0
    if done.skipped:
        named = ", ".join(done.skipped[:_NAMED])
        complain(f"{len(done.skipped)} left out, being no files, directories or links: {named}")
    say(_told(done))
    return 0


def _told(done: Upload) -> str:
    if not (done.added or done.changed or done.removed):
        return f"version {done.version}: nothing has changed"
    return f"version {done.version}: {done.added} added, {done.changed} changed, {done.removed} removed"


def _patterns(args: Namespace) -> list[str]:
    patterns: list[str] = args.ignore
    if args.ignore_from is None:
        return patterns
    with open(args.ignore_from, encoding="utf-8", errors="surrogateescape") as file:
        return [*file.read().splitlines(), *patterns]


def _download(args: Namespace) -> int:
    name, directory = args.names
    try:
        with Counting("written") as counting:
            Codebases().download(
                name, directory, version=args.version, overwrite=args.force, on_progress=counting.callback
            )
    except FilePresent:
        raise UsageError(f"{directory} is there already and not empty; -f replaces files in it.") from None
    return 0


def _list(args: Namespace) -> int:
    found = Codebases().list(args.owner)
    if args.json:
        say_json([each._asdict() for each in found])
        return 0
    now = time.time()
    head, *lines = table([_HEADER, *(_row(each, now) for each in found)], {}, colours=False)
    say(paint(head, "bold", wanted=colourful()))
    for line in lines:
        say(line)
    return 0


def _row(each: Codebase, now: float) -> list[str]:
    age = span(now - each.updated)
    return [each.id, each.name, each.owner, str(each.version), str(each.files), format_size(each.size), f"{age} ago"]


def _show(args: Namespace) -> int:
    codebases = Codebases()
    found = codebases.get(args.names[0])
    files = codebases.files(found, version=args.version) if args.files or args.version is not None else []
    if args.json:
        say_json({**found._asdict(), **({"entries": [info._asdict() for info in files]} if args.files else {})})
        return 0
    if not args.files:
        for head, value in zip(_HEADER, _row(found, time.time()), strict=True):
            say(f"{head.lower().ljust(8)} {value}")
        return 0
    for info in files:
        target = f" -> {info.target}" if info.target is not None else ""
        say(f"{_LETTERS[info.type]}{info.mode:04o} {info.size:>12} {visible(info.path + target)}")
    return 0


def _delete(args: Namespace) -> int:
    gone = [_deleted(name) for name in args.names]
    if args.json:
        say_json([each._asdict() for each in gone if each is not None])
    else:
        for each in gone:
            if each is not None:
                say(each.id)
    return 0 if all(gone) else FAILED


def _deleted(name: str) -> Codebase | None:
    try:
        return Codebases().delete(name)
    except AtollError as error:
        complain(str(error))
        return None


_LETTERS = {"file": "-", "directory": "d", "symlink": "l", "other": "?"}
_GIVEN = ("owner", "ignore", "ignore_from", "at", "keep", "version", "force", "files", "json")
_ACTIONS = {
    "create": (_create, 1, 2, ("owner", "ignore", "ignore_from", "json")),
    "upload": (_upload, 1, 2, ("ignore", "ignore_from", "at", "keep", "json")),
    "download": (_download, 2, 2, ("version", "force")),
    "list": (_list, 0, 0, ("owner", "json")),
    "show": (_show, 1, 1, ("version", "files", "json")),
    "delete": (_delete, 1, 1 << 20, ("json",)),
}
_WORDS = {
    "create": "a name, and if you like a directory",
    "upload": "a codebase, and if you like a directory",
    "download": "a codebase and a directory",
    "list": "no names",
    "show": "one codebase",
    "delete": "one or more codebases",
}
