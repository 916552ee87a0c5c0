"""`atoll snapshot`: keep files and variables of sandboxes under a name, and what there is to do with these."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from ..errors import AtollError
from ..sync.snapshots import Snapshots
from ..types import Snapshot
from . import FAILED
from .list import span
from .output import colourful, complain, paint, say, say_json, table
from .parsing import Parser, UsageError
from .places import find
from .values import duration

_DESCRIPTION = """\
Keep the files of a sandbox and the variables of its Python contexts as they
are now, under a name. `atoll run --snapshot NAME` begins there, and
`atoll rollback ID NAME` goes back there. What runs in the sandbox goes on.
"""

_EPILOG = """\
actions:
  create ID [NAME]      keep a sandbox as it is now; prints the name
  list                  all that there are, newest first (default)
  show NAME             everything about one
  delete NAME ...       forget some; sandboxes that were made of them live on
  export NAME FILE      write one to a file; a name in .gz is compressed
  import FILE           read one from such a file, which need not be trusted

examples:
  atoll snapshot create sb-k3 ready
  atoll run --snapshot ready "make test"
  atoll snapshot export ready ready.tar.gz
  atoll snapshot import ready.tar.gz --name theirs

exit code:
  0, or 125 when something could not be done; of several the others are done
  all the same
"""

_WAIT = "2"
_STEPS = "tr-"  # each step of an agent is kept, under the name of its run
_HEADER = ["NAME", "SANDBOX", "AGE", "SIZE", "LAYERS"]
_UNITS = ("", "K", "M", "G", "T")


def main(words: list[str]) -> int:
    parser = Parser("snapshot", "[list] | ACTION [OPTIONS] ...", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("action", nargs="?", default="list", metavar="ACTION", help="what to do; see below")
    add("words", nargs="*", metavar="WORD", help="a sandbox, or the beginning of its id; names; a file")
    add("--wait", metavar="TIME", default=_WAIT, help=f"create: how long to wait for cells that run (default: {_WAIT})")
    add("--force", action="store_true", help="create: end processes that have a file open to write to")
    add("--name", metavar="NAME", help="import: how to call it here")
    add("--sandbox", metavar="ID", help="list: only those of this sandbox")
    add("--all", action="store_true", help="list: those of agents' steps, too")
    add("--limit", metavar="SIZE", default=None, help="import: how much the file may hold (default: 64G)")
    add("--json", action="store_true", help="list, show: everything, as JSON")
    args = parser.parse_intermixed_args(words)
    action = _ACTIONS.get(args.action)
    if action is None:
        raise UsageError(f"There is no action {args.action!r}; say one of {', '.join(_ACTIONS)}.")
    return action(args)


def _create(args: Namespace) -> int:
    _expect(args, 1, 2, "atoll snapshot create ID [NAME]")
    wait = duration(args.wait, "--wait")
    made = find(args.words[0]).snapshot(*args.words[1:], wait=wait, force=args.force)
    tell_lost(made)
    say(made.name)
    return 0


def tell_lost(made: Snapshot) -> None:
    for name, reason in made.lost.items():
        complain(f"{name} is not kept: {reason}.")


def _list(args: Namespace) -> int:
    _expect(args, 0, 0, "atoll snapshot list")
    found = Snapshots().list()
    if args.sandbox is not None:  # it may have ended
        found = [each for each in found if (each.sandbox or "").startswith(args.sandbox)]
    elif not args.all:
        found = [each for each in found if not each.name.startswith(_STEPS)]
    if args.json:
        say_json([_as_json(each) for each in found])
        return 0
    now = time.time()
    rows = [
        [each.name, each.sandbox or "-", span(now - each.created), _size(each.size), str(len(each.layers))]
        for each in found
    ]
    head, *lines = table([_HEADER, *rows], {}, colours=False)
    say(paint(head, "bold", wanted=colourful()))
    for line in lines:
        say(line)
    return 0


def _show(args: Namespace) -> int:
    _expect(args, 1, 1, "atoll snapshot show NAME")
    found = Snapshots().get(args.words[0])
    if args.json:
        say_json(_as_json(found))
        return 0
    facts = {
        "name": found.name,
        "sandbox": found.sandbox or "- (from a file)",
        "wall": found.driver,
        "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.created)),
        "size": _size(found.size),
        "layers": " ".join(found.layers),
    }
    for line in table([[key, value] for key, value in facts.items()], {}, colours=False):
        say(line)
    tell_lost(found)
    return 0


def _delete(args: Namespace) -> int:
    _expect(args, 1, None, "atoll snapshot delete NAME ...")
    gone = [_delete_one(name) for name in args.words]
    return 0 if all(gone) else FAILED


def _delete_one(name: str) -> bool:
    try:
        Snapshots().delete(name)
    except AtollError as error:
        complain(str(error))
        return False
    say(name)
    return True


def _export(args: Namespace) -> int:
    _expect(args, 2, 2, "atoll snapshot export NAME FILE")
    Snapshots().export(*args.words)
    say(args.words[1])
    return 0


def _import(args: Namespace) -> int:
    _expect(args, 1, 1, "atoll snapshot import FILE [--name NAME]")
    wishes = {} if args.limit is None else {"limit": args.limit}
    say(Snapshots().import_file(args.words[0], args.name, **wishes).name)
    return 0


_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "delete": _delete,
    "export": _export,
    "import": _import,
}


def _expect(args: Namespace, least: int, most: int | None, usage: str) -> None:
    if len(args.words) < least or (most is not None and len(args.words) > most):
        raise UsageError(f"Write it as `{usage}`.")


def _as_json(snapshot: Snapshot) -> dict[str, Any]:
    return {**snapshot._asdict(), "layers": list(snapshot.layers), "lost": dict(snapshot.lost)}


def _size(size: float) -> str:
    """Rounded, for people."""
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size /= 1024
        power += 1
    return f"{size:.0f}{_UNITS[power]}" if size >= 10 or not power else f"{size:.1f}{_UNITS[power]}"
