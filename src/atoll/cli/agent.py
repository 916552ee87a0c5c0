"""`atoll agent`: a model works on a task in a sandbox."""

from __future__ import annotations

from .agentoptions import add_agent_options, add_showing_options
from .parsing import Parser

_DESCRIPTION = """\
Have a model work on a task by itself, in a sandbox of its own, until it is
done or a limit is reached. Each step is kept: a run that was interrupted, or
killed, goes on with `atoll resume`, and `atoll logs` shows what was done.
"""

_EPILOG = """\
examples:
  atoll agent "count the words in every file" --source .
  atoll agent "make the tests pass" --source . --preset development \\
      --validate "python -m pytest -q"
  atoll agent "sum up the log" --context server.log --model openai/gpt-4o-mini
  atoll agent "…" --detach ; atoll logs --follow ID

exit code:
  0 when it was done; 1 when it failed, a limit was reached, or the check was
  never passed: the best answer so far is printed all the same; 125 when it
  could not go on; 130 when it was interrupted
"""


def main(words: list[str]) -> int:
    parser = Parser("agent", "[OPTIONS] TASK", _DESCRIPTION, _EPILOG)
    parser.add_argument("words", nargs="*", metavar="TASK", help="what is to be done")
    add_agent_options(parser)
    add_showing_options(parser)
    parser.add_argument("--detach", action="store_true", help="work in the background, and print the id of the run")
    args = parser.parse_intermixed_args(words)
    from .agentwork import begin

    return begin(args, "agent")
