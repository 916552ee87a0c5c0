"""`atoll run`: a command, a program or a cell, in a sandbox of its own."""

from __future__ import annotations

from argparse import Namespace

from .options import (
    HABITS,
    add_code_options,
    add_command_options,
    add_program_options,
    add_sandbox_options,
    is_cell,
    start_directory,
)
from .parsing import Parser

_DESCRIPTION = """\
Run a command in a sandbox that is made for it and gone afterwards. One word
goes to bash, else sh; several words, or words after `--`, are a program and its
arguments. Options of atoll come before the command; what follows its first word
is the command's own. On a terminal a command has it, as in `atoll run python3`.
"""

_EPILOG = """\
examples:
  atoll run "ls -la | wc -l"
  atoll run -- python3 -c 'print("hi")'
  atoll run --file main.go -- --verbose     the file's arguments follow
  atoll run --lang node 'console.log(6*7)'
  cat job.py | atoll run --lang python
  atoll run --source . --preset development "make test"     this directory
  atoll run --file app.py --deps requirements.txt --network all
  atoll run --reuse -l project=docs "make html"
  atoll run --keep --code "x = 41"          atoll exec ID --code "x"

exit code:
  that of the command; 124 after its timeout, 125 when atoll itself fails,
  127 when there is no such command or language, 130 after Ctrl-C; 1 for a
  cell that raised
"""

_SPARE = 60.0
_DAY = 86400.0
_HOUR = 3600.0


def main(words: list[str]) -> int:
    parser = Parser("run", "[OPTIONS] [--] COMMAND [ARG ...]", _DESCRIPTION, _EPILOG, HABITS)
    add_command_options(parser)
    add_program_options(parser)
    add_code_options(parser)
    add_sandbox_options(parser)
    args = parser.parse_command(words)
    return _run_cell(args) if is_cell(args) else _run(args)


def _run(args: Namespace) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from . import programs
    from .interrupts import Interrupts
    from .places import Place

    job = programs.job(args, start_directory(args))
    if job.deps is not None and not args.reuse:
        job.deps.check_network(args.network or "none")
    spare = _SPARE if job.deps is None else _SPARE + job.deps.seconds
    place = Place(args, Interrupts(), _lifetime(args, job.timeout, spare))
    with place as sandbox:
        programs.prepare(sandbox, job)
        place.announce()
        return programs.run(sandbox, job)


def _run_cell(args: Namespace) -> int:
    from . import cells
    from .interrupts import Interrupts
    from .places import Place

    job = cells.job(args, start_directory(args))
    place = Place(args, Interrupts(), _lifetime(args, job.timeout, _SPARE))
    with place as sandbox:
        place.announce()
        return cells.run(sandbox, job)


def _lifetime(args: Namespace, timeout: float | str | None, spare: float) -> float:
    """A throw-away sandbox lives a little longer than its command may run, should we die before it."""
    if timeout is None:
        return _DAY
    seconds = (60.0 if isinstance(timeout, str) else timeout) + spare
    return max(seconds, _HOUR) if args.keep or args.reuse else seconds
