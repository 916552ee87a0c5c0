"""`atoll resume`: continue sandboxes that were stopped or paused, and agents' runs."""

from __future__ import annotations

from argparse import Namespace

from ..errors import AtollError
from . import FAILED
from .agentoptions import add_resuming_options, add_showing_options, changes_of
from .output import complain, say
from .parsing import Parser, UsageError
from .places import find

_DESCRIPTION = """\
Start sandboxes again that `atoll stop` has stopped, with their files and the
variables of their Python contexts; a paused one goes on where it was. One that
runs is left alone. Prints the ids of those that run now.

The id of an agent's run, which begins with tr-, continues that run at the very
step where it was interrupted or killed. Nothing that has ended is done again.
With --at, a fork branches off after that step instead. Model, limits and
sandbox are those of the run, unless you say otherwise; a run that ended at a
limit continues when you give it a larger one.
"""

_EPILOG = """\
examples:
  atoll resume sb-k3               the beginning of an id is enough
  atoll list -q --status stopped | xargs atoll resume
  atoll resume tr-4f               an agent's run; `atoll logs` lists them
  atoll resume tr-4f --token-budget 50000
  atoll resume tr-4f --at 5 --say "use polars instead"

exit code:
  0, or 125 when one of them could not be found or started; the others are
  started all the same. For a run as `atoll agent`
"""


def main(words: list[str]) -> int:
    parser = Parser("resume", "ID ...", _DESCRIPTION, _EPILOG)
    parser.add_argument("ids", nargs="*", metavar="ID", help="a sandbox or a run, or the beginning of its id")
    add_resuming_options(parser)
    add_showing_options(parser)
    args = parser.parse_intermixed_args(words)
    if not args.ids:
        raise UsageError("Say which sandboxes to resume, by their ids; `atoll list --status stopped` shows them.")
    if any(prefix.startswith("tr-") for prefix in args.ids):
        return _run(args)
    if args.at is not None or args.say is not None or changes_of(args):
        raise UsageError("These options are for an agent's run, whose id begins with tr-.")
    done = [_resume(prefix) for prefix in args.ids]
    return 0 if all(done) else FAILED


def _run(args: Namespace) -> int:
    if len(args.ids) > 1:
        raise UsageError("Runs of agents go on one at a time; give one id.")
    if args.say is not None and args.at is None:
        raise UsageError("--say goes with --at, which says where the fork branches off.")
    from .agentwork import resuming, work
    from .values import whole_number

    agent, progress = resuming(args)
    id, changes = args.ids[0], changes_of(args)
    if args.at is not None:
        id = agent.prepare_fork(id, whole_number(args.at, "--at"), prompt=args.say, **changes)
        changes = {}
    return work(agent, progress, id, args, changes)


def _resume(prefix: str) -> bool:
    try:
        sandbox = find(prefix)
        sandbox.resume()
    except AtollError as error:
        complain(str(error))
        return False
    say(sandbox.id)
    return True
