"""`atoll exec`: a command or a program, in a sandbox that exists."""

from __future__ import annotations

from argparse import Namespace

from .options import OWN_OPTIONS, add_command_options, add_program_options
from .parsing import Parser, UsageError, split

_DESCRIPTION = """\
Run a command in a sandbox that exists, whoever made it. The beginning of an
id is enough. One word goes to /bin/sh -c; several words, or words after `--`,
are a program and its arguments.
"""

_EPILOG = """\
examples:
  atoll run --keep "touch a"       prints an id such as sb-k3x8…
  atoll exec sb-k3 "ls -la"
  atoll exec sb-k3 -- python3 -c 'print("hi")'
  atoll exec sb-k3 --file check.py

exit code:
  that of the command; 124 after its timeout, 125 when atoll itself fails,
  127 when there is no such command or language, 130 after Ctrl-C
"""


def main(words: list[str]) -> int:
    parser = Parser("exec", "[OPTIONS] ID COMMAND | ID -- PROGRAM [ARG ...]", _DESCRIPTION, _EPILOG, OWN_OPTIONS)
    parser.add_argument("id", metavar="ID", help="the sandbox, or the beginning of its id")
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="what to run")
    add_command_options(parser)
    parser.add_argument("-w", "--workdir", metavar="DIR", help="where to start (default: the sandbox's own)")
    add_program_options(parser)
    before, after = split(words)
    args = parser.parse_intermixed_args(before)
    if not args.id:
        raise UsageError("The id is empty; `atoll list` shows the sandboxes.")
    return _exec(args, after)


def _exec(args: Namespace, after: list[str] | None) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from . import programs
    from .interrupts import Interrupts
    from .places import find

    job = programs.job(args, after, args.workdir)
    Interrupts()  # SIGTERM and SIGHUP, too, kill what runs before they end us
    sandbox = find(args.id)
    programs.prepare(sandbox, job)
    return programs.run(sandbox, job)
