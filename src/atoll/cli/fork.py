"""`atoll fork`: copies of a sandbox that continue from its current state."""

from __future__ import annotations

from .output import complain, say
from .parsing import Parser, UsageError
from .places import find
from .values import duration, labels, whole_number

_DESCRIPTION = """\
Make copies of a sandbox that continue from its current state, with its files
and its Python variables, independently from then on. Prints their ids; what
they cannot have of it (what runs, open files, …) is on stderr.
"""

_EPILOG = """\
examples:
  atoll fork sb-k3                 the beginning of an id is enough
  atoll fork sb-k3 -n 10 -l try=1
  atoll exec $(atoll fork sb-k3) "make test"

exit code:
  0, or 125 when it could not be forked; then nothing is left of any copy
"""

_WAIT = "30"


def main(words: list[str]) -> int:
    parser = Parser("fork", "[OPTIONS] ID", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="a sandbox, or the beginning of its id")
    add("-n", "--count", metavar="COUNT", default="1", help="how many (default: 1)")
    add("-l", "--label", metavar="KEY=VALUE", action="append", default=[],
        help="what the copies carry (default: what the sandbox does); may be repeated")  # fmt: skip
    add("--lifetime", metavar="TIME", help="until they end by themselves (default: as for the sandbox)")
    add("--wait", metavar="TIME", default=_WAIT, help=f"how long to wait for cells that run (default: {_WAIT})")
    add("--force", action="store_true", help="end processes that have a file open to write to")
    args = parser.parse_intermixed_args(words)
    if len(args.ids) != 1:
        raise UsageError("Say which sandbox to fork, by its id; `atoll list` shows them.")
    twins = find(args.ids[0]).fork(
        whole_number(args.count, "--count"),
        labels=labels(args.label) or None,
        lifetime=None if args.lifetime is None else duration(args.lifetime, "--lifetime"),
        wait=duration(args.wait, "--wait"),
        force=args.force,
    )
    for twin in twins:
        say(twin.id)
    for name, why in twins[0].info.lost.items():
        complain(f"{name} is not in the copies: {why}.")
    return 0
