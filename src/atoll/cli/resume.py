"""`atoll resume`: sandboxes that were stopped or paused go on."""

from __future__ import annotations

from ..errors import AtollError
from . import FAILED
from .output import complain, say
from .parsing import Parser, UsageError
from .places import find

_DESCRIPTION = """\
Start sandboxes again that `atoll stop` has stopped, with their files and the
variables of their Python contexts; a paused one goes on where it was. One that
runs is left alone. Prints the ids of those that run now.
"""

_EPILOG = """\
examples:
  atoll resume sb-k3               the beginning of an id is enough
  atoll list -q --status stopped | xargs atoll resume

exit code:
  0, or 125 when one of them could not be found or started; the others are
  started all the same
"""


def main(words: list[str]) -> int:
    parser = Parser("resume", "ID ...", _DESCRIPTION, _EPILOG)
    parser.add_argument("ids", nargs="*", metavar="ID", help="a sandbox, or the beginning of its id")
    args = parser.parse_intermixed_args(words)
    if not args.ids:
        raise UsageError("Say which sandboxes to resume, by their ids; `atoll list --status stopped` shows them.")
    done = [_resume(prefix) for prefix in args.ids]
    return 0 if all(done) else FAILED


def _resume(prefix: str) -> bool:
    try:
        sandbox = find(prefix)
        sandbox.resume()
    except AtollError as error:
        complain(str(error))
        return False
    say(sandbox.id)
    return True
