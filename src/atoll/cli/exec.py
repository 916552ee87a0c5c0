"""`atoll exec`: a command, a program or a cell, in a sandbox that exists."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from .options import HABITS, add_code_options, add_command_options, add_program_options, is_cell
from .parsing import Parser, UsageError

if TYPE_CHECKING:
    from ..sync.sandbox import Sandbox

_DESCRIPTION = """\
Run a command in a sandbox that exists, whoever made it. The beginning of an
id is enough; with -l there is no id, and all words are the command. One word
goes to bash, else sh; several words, or words after `--`, are a program and its
arguments. Options of atoll come before the command; what follows its first word
is the command's own. On a terminal a command has it, as in `atoll run python3`.
"""

_EPILOG = """\
examples:
  atoll run --keep "touch a"       prints an id such as sb-k3x8…
  atoll exec sb-k3 "ls -la"
  atoll exec sb-k3 -- python3 -c 'print("hi")'
  atoll exec sb-k3 -e MODE=fast make test
  atoll exec sb-k3 --file check.py
  atoll exec -l project=docs "make html"
  atoll exec sb-k3 --code "x = 41"
  atoll exec sb-k3 --code "x + 1"  prints 42: variables stay

exit code:
  that of the command; 124 after its timeout, 125 when atoll itself fails,
  127 when there is no such command or language, 130 after Ctrl-C; 1 for a
  cell that raised
"""


def main(words: list[str]) -> int:
    parser = Parser("exec", "[OPTIONS] ID|-l KEY=VALUE [--] COMMAND [ARG ...]", _DESCRIPTION, _EPILOG, HABITS)
    parser.add_argument("id", nargs="?", metavar="ID", help="the sandbox, or the beginning of its id")
    parser.add_argument("-l", "--label", metavar="KEY=VALUE", action="append", default=[],
        help="instead of an id: the one sandbox with this label; of several labels, with all")  # fmt: skip
    add_command_options(parser)
    parser.add_argument("-w", "--workdir", metavar="DIR", help="where to start (default: the sandbox's own)")
    add_program_options(parser)
    add_code_options(parser)
    args = parser.parse_command(words, lambda options: not any(map(_is_label, options)))
    if args.label and args.id is not None:
        raise UsageError(f"Give an id or -l KEY=VALUE, not both; with -l, write it before the command: {args.id!r}.")
    if not args.label and not args.id:
        raise UsageError("There is no id; `atoll list` shows the sandboxes, and -l KEY=VALUE finds one by its label.")
    return _exec(args)


def _is_label(word: str) -> bool:
    return word.startswith(("-l", "--label"))


def _exec(args: Namespace) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from .interrupts import Interrupts

    if is_cell(args):
        from . import cells

        cell = cells.job(args, args.workdir)
        Interrupts()
        return cells.run(_sandbox(args), cell)
    from . import programs

    job = programs.job(args, args.workdir)
    Interrupts()  # SIGTERM and SIGHUP, too, kill what runs before they end us
    sandbox = _sandbox(args)
    programs.prepare(sandbox, job)
    return programs.run(sandbox, job)


def _sandbox(args: Namespace) -> Sandbox:
    from .places import find, find_labelled
    from .values import labels

    wanted = labels(args.label)
    return find_labelled(wanted) if wanted else find(args.id)
