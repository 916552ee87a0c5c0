"""`atoll run`: a command or a program, in a sandbox of its own."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from .options import OWN_OPTIONS, add_command_options, add_program_options, add_sandbox_options, start_directory
from .parsing import Parser, split

if TYPE_CHECKING:
    from .programs import Job

_DESCRIPTION = """\
Run a command in a sandbox that is made for it and gone afterwards. One word
goes to /bin/sh -c; several words, or words after `--`, are a program and its
arguments.
"""

_EPILOG = """\
examples:
  atoll run "ls -la | wc -l"
  atoll run -- python3 -c 'print("hi")'
  atoll run --file main.go -- --verbose     the file's arguments follow
  atoll run --lang node 'console.log(6*7)'
  cat job.py | atoll run --lang python
  atoll run --source . -t 5m "make test"    this directory, copy-on-write
  atoll run --file app.py --deps requirements.txt --network all
  atoll run --reuse -l project=docs "make html"

exit code:
  that of the command; 124 after its timeout, 125 when atoll itself fails,
  127 when there is no such command or language, 130 after Ctrl-C
"""

_SPARE = 60.0
_DAY = 86400.0
_HOUR = 3600.0


def main(words: list[str]) -> int:
    parser = Parser("run", "[OPTIONS] COMMAND | -- PROGRAM [ARG ...]", _DESCRIPTION, _EPILOG, OWN_OPTIONS)
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="what to run")
    add_command_options(parser)
    add_program_options(parser)
    add_sandbox_options(parser)
    before, after = split(words)
    args = parser.parse_intermixed_args(before)
    return _run(args, after)


def _run(args: Namespace, after: list[str] | None) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from . import programs
    from .interrupts import Interrupts
    from .places import Place

    job = programs.job(args, after, start_directory(args))
    if job.deps is not None and not args.reuse:
        job.deps.check_network(args.network or "none")
    place = Place(args, Interrupts(), _lifetime(job, stays=args.keep or args.reuse))
    with place as sandbox:
        programs.prepare(sandbox, job)
        place.announce()
        return programs.run(sandbox, job)


def _lifetime(job: Job, *, stays: bool) -> float:
    """A throw-away sandbox lives a little longer than its command may run, should we die before it."""
    if job.timeout is None:
        return _DAY
    seconds = (60.0 if isinstance(job.timeout, str) else job.timeout) + _SPARE
    if job.deps is not None:
        seconds += job.deps.seconds
    return max(seconds, _HOUR) if stays else seconds
