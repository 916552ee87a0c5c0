"""`atoll stop`: end what runs in sandboxes, and keep their files and variables."""

from __future__ import annotations

from ..errors import AtollError
from . import FAILED
from .output import complain, say
from .parsing import Parser, UsageError
from .places import find
from .values import duration

_DESCRIPTION = """\
End all that runs in sandboxes, and keep their files and the variables of their
Python contexts until `atoll resume`. Prints the ids of those that were stopped;
what could not be kept is named on stderr. A cell that runs is waited for.
"""

_EPILOG = """\
examples:
  atoll stop sb-k3                 the beginning of an id is enough
  atoll stop sb-k3 --wait 5m
  atoll resume sb-k3

exit code:
  0, or 125 when one of them could not be found or stopped; the others are
  stopped all the same
"""

_WAIT = "30"


def main(words: list[str]) -> int:
    parser = Parser("stop", "[OPTIONS] ID ...", _DESCRIPTION, _EPILOG)
    parser.add_argument("ids", nargs="*", metavar="ID", help="a sandbox, or the beginning of its id")
    parser.add_argument("--wait", metavar="TIME", default=_WAIT,
        help=f"how long to wait for cells that run (default: {_WAIT})")  # fmt: skip
    args = parser.parse_intermixed_args(words)
    if not args.ids:
        raise UsageError("Say which sandboxes to stop, by their ids; `atoll list` shows them.")
    wait = duration(args.wait, "--wait")
    done = [_stop(prefix, wait) for prefix in args.ids]
    return 0 if all(done) else FAILED


def _stop(prefix: str, wait: float) -> bool:
    try:
        sandbox = find(prefix)
        kept = sandbox.stop(wait=wait)
    except AtollError as error:
        complain(str(error))
        return False
    for name, reason in kept.lost.items():
        complain(f"{name} is not kept: {reason}.")
    say(sandbox.id)
    return True
