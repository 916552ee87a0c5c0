"""`atoll ask`: a model answers a question, with a sandbox at hand."""

from __future__ import annotations

from .agentoptions import add_agent_options, add_showing_options
from .parsing import Parser

_DESCRIPTION = """\
Have a model answer a question. It has a sandbox to compute and look things up
in, and a long context is a variable there, not a part of the prompt.
"""

_EPILOG = """\
examples:
  atoll ask "how many primes are there below a million?"
  atoll ask "which function is the longest?" --context big.py
  git log | atoll ask "what changed this month?" --context - --packages pandas

exit code:
  as `atoll agent`
"""


def main(words: list[str]) -> int:
    parser = Parser("ask", "[OPTIONS] QUESTION", _DESCRIPTION, _EPILOG)
    parser.add_argument("words", nargs="*", metavar="QUESTION", help="what you want to know")
    add_agent_options(parser)
    add_showing_options(parser)
    args = parser.parse_intermixed_args(words)
    from .agentwork import begin

    return begin(args, "completion")
