"""`atoll destroy`: end sandboxes, by id or by label."""

from __future__ import annotations

from .. import store
from ..errors import AtollError, SandboxGone
from ..store import Row
from ..sync.sandbox import Sandbox
from . import FAILED
from .output import complain, say
from .parsing import Parser, UsageError
from .values import labels

_DESCRIPTION = """\
End sandboxes, with all that runs in them, and remove everything of them.
Prints the ids of those that were ended. --all shows them first, and asks;
without a terminal it needs --yes.
"""

_EPILOG = """\
examples:
  atoll destroy sb-k3              the beginning of an id is enough
  atoll destroy -l project=docs    all that carry this label
  atoll destroy --all --yes

exit code:
  0; 1 when you said no; or 125 when one of them could not be found or ended;
  the others are ended all the same
"""


def main(words: list[str]) -> int:
    parser = Parser("destroy", "ID ... | -l KEY=VALUE | --all", _DESCRIPTION, _EPILOG)
    parser.add_argument("ids", nargs="*", metavar="ID", help="a sandbox, or the beginning of its id")
    parser.add_argument("-l", "--label", metavar="KEY=VALUE", action="append", default=[],
        help="those that carry this label; of several, those that carry all")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every sandbox of this user")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask about --all")
    args = parser.parse_intermixed_args(words)
    if sum(map(bool, (args.ids, args.label, args.all))) != 1:
        raise UsageError("Say which sandboxes to destroy: by their ids, or with -l KEY=VALUE, or with --all.")
    if args.ids:
        done = [_destroy_one(prefix) for prefix in args.ids]
    else:
        rows = _chosen(args.label)
        if args.all and not args.yes and rows and not _is_wanted(rows):
            return 1
        done = [_destroy(row.id) for row in rows]
    return 0 if all(done) else FAILED


def _chosen(entries: list[str]) -> list[Row]:
    rows = store.shared().find(labels(entries))
    if not rows:
        complain("There is nothing to destroy.")
    return rows


def _is_wanted(rows: list[Row]) -> bool:
    from .reviews import check_asked, says_yes

    check_asked("destroy --all")
    for row in rows:
        say(row.id)
    return says_yes("Destroy them?")


def _destroy_one(prefix: str) -> bool:
    try:
        return _destroy(store.shared().resolve(prefix).id)
    except AtollError as error:
        complain(str(error))
        return False


def _destroy(id: str) -> bool:
    """Whether it is gone now."""
    try:
        Sandbox.connect(id).destroy()
    except SandboxGone:
        pass  # it had ended by itself, and `connect` has swept up
    except AtollError as error:
        complain(f"{id} could not be destroyed: {error}")
        return False
    say(id)
    return True
