"""`atoll rollback`: restore a sandbox from one of its snapshots."""

from __future__ import annotations

from .output import say
from .parsing import Parser, UsageError
from .places import find

_DESCRIPTION = """\
Restore the files of a sandbox and the variables of its Python contexts from one
of its own snapshots. All that runs in it ends. Prints its id.
"""

_EPILOG = """\
examples:
  atoll snapshot create sb-k3 ready
  atoll rollback sb-k3 ready       the beginning of an id is enough

exit code:
  0, or 125 when there is no such sandbox or snapshot
"""


def main(words: list[str]) -> int:
    parser = Parser("rollback", "ID NAME", _DESCRIPTION, _EPILOG)
    parser.add_argument("words", nargs="*", metavar="ID NAME", help="a sandbox, and one of its snapshots")
    args = parser.parse_intermixed_args(words)
    if len(args.words) != 2:
        raise UsageError("Say which sandbox goes back to which snapshot: `atoll rollback ID NAME`.")
    sandbox = find(args.words[0])
    sandbox.rollback(args.words[1])
    say(sandbox.id)
    return 0
