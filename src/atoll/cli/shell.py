"""`atoll shell`: a terminal inside a sandbox."""

from __future__ import annotations

import os

from ..errors import SandboxNotFound
from ..sync.sandbox import Sandbox
from . import terminals
from .interrupts import Interrupts
from .options import add_env_option, add_sandbox_options, refuse_wishes, start_directory
from .output import STDERR, colourful, paint, write
from .parsing import Parser, UsageError
from .places import Place, find
from .values import variables

_DESCRIPTION = """\
A shell on a terminal inside a sandbox: one that exists, or a new one that is
gone when you leave (exit or Ctrl-D). Words after `--`, or after the id, are run
instead of a shell; their options are their own.
"""

_EPILOG = """\
examples:
  atoll shell                      a fresh sandbox
  atoll shell --source .           with a copy-on-write view of this directory
  atoll shell sb-k3                one that exists, by the beginning of its id
  atoll shell -- python3           something else than a shell

exit code:
  that of the shell; 125 when atoll itself fails
"""

_DAY = 86400.0

# The shell shows where it is: in which sandbox, in which directory.
_SHELL = """\
if command -v bash >/dev/null 2>&1; then
  export PS1="\\[\\e[36m\\]$ATOLL_SANDBOX\\[\\e[0m\\]:\\w\\$ "
  exec bash --norc
fi
export PS1="$ATOLL_SANDBOX\\$ "
exec sh
"""


def main(words: list[str]) -> int:
    parser = Parser("shell", "[OPTIONS] [ID] [--] [PROGRAM [ARG ...]]", _DESCRIPTION, _EPILOG)
    parser.add_argument("id", nargs="?", metavar="ID", help="a sandbox that exists (default: a new one)")
    add_env_option(parser)
    add_sandbox_options(parser)
    args = parser.parse_command(words, lambda _: 1)
    command = args.words or args.after
    _require_terminal()
    env = variables(args.env)
    interrupts = Interrupts()
    if args.id is not None:
        refuse_wishes(args)
        return _session(_found(args.id, command), command, env, args.workdir)
    place = Place(args, interrupts, _DAY)
    with place as sandbox:
        place.announce()
        if not args.keep and not args.reuse:
            _greet(sandbox)
        return _session(sandbox, command, env, start_directory(args))


def _found(id: str, command: list[str] | None) -> Sandbox:
    try:
        return find(id)
    except SandboxNotFound as error:
        if "-" in id:  # every id has one, and few programs do
            raise
        words = " ".join([id, *(command or ())])
        raise SandboxNotFound(error.message, hint=f"A program in a new one is `atoll shell -- {words}`.") from None


def _require_terminal() -> None:
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("A shell needs a terminal; `atoll run` and `atoll exec` work without one.")


def _greet(sandbox: Sandbox) -> None:
    text = f"{sandbox.id} on {sandbox.driver}; it is gone when you leave with exit or Ctrl-D"
    write(STDERR, f"{paint(text, 'faint', wanted=colourful(STDERR))}\n".encode())


def _session(sandbox: Sandbox, command: list[str] | None, env: dict[str, str], workdir: str | None) -> int:
    surroundings = {"ATOLL_SANDBOX": sandbox.id, **env}
    ended = terminals.run(sandbox, command or ["/bin/sh", "-c", _SHELL], env=surroundings, workdir=workdir)
    return ended.exit_code
