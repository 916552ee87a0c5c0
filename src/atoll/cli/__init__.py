"""The command line. One file a command, imported when it is asked for; `atoll --help` imports none."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # what type checkers take for true; importing typing or collections.abc would cost `--help` 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FAILED = 125
CLOSED = 141

COMMANDS = {
    "run": "run a command or a program in a sandbox of its own",
    "shell": "a terminal inside a sandbox",
    "repl": "a prompt for code that keeps its state from cell to cell",
    "exec": "run a command or a cell in a sandbox that exists",
    "cp": "copy files and directories into a sandbox or out of it",
    "diff": "what a sandbox has changed of its source",
    "apply": "take over what a sandbox has changed, into its source",
    "discard": "throw away what a sandbox has changed of its source",
    "list": "the sandboxes that exist",
    "audit": "which accesses were refused to a sandbox",
    "stop": "end what runs in a sandbox, and keep its files and variables",
    "resume": "go on with a sandbox that was stopped, or with an agent's run",
    "destroy": "end sandboxes and remove everything of them",
    "snapshot": "keep a sandbox as it is under a name; list, delete, export these",
    "rollback": "have a sandbox as it was in a snapshot",
    "fork": "twins of a sandbox that go on where it is",
    "agent": "have a model work on a task in a sandbox",
    "ask": "have a model answer a question, with a sandbox at hand",
    "logs": "what agents did: list, show, follow, export, delete",
    "validate": "run a deterministic check behind a wall, and keep a sealed result",
    "policy": "what rules would do to a directory, before anything runs",
    "codebase": "source trees that are stored here, for many sandboxes",
    "packages": "the Python packages that are kept for the next sandbox",
    "mcp-serve": "serve sandboxes to MCP clients, over stdio or HTTP",
    "mcp-install": "write the configuration of an MCP client",
    "init": "write a commented atoll.toml",
    "config": "every setting, its value, and where it comes from",
    "providers": "the walls that atoll can build, and which of them work here",
    "doctor": "the layers of the wall here, and how to mend what is missing",
    "test": "try a wall from create to destroy, with figures",
    "version": "which atoll this is",
}

_HEAD = """\
Run code that you do not trust, behind a wall.

usage: atoll COMMAND ...
"""

_EXAMPLES = """\
Examples:
  atoll run "echo hi"          a command, in a sandbox that is gone afterwards
  atoll run --file hello.py    a program; the language comes from its name
  atoll shell --source .       look around in a copy-on-write view of this place
  echo 'print(6 * 7)' | atoll run --lang python

`atoll COMMAND --help` says more about one command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code. Errors of atoll itself are told in a sentence and give 125."""
    words = list(sys.argv[1:] if argv is None else argv)
    _fill_descriptors()
    code = _guarded(lambda: _dispatch(words))
    if argv is None:
        # Nothing is buffered and no thread is to be waited for. An orderly end would tidy the registry's
        # log, which the next process can use as it is, and take a module apart after the other: 8 ms.
        os._exit(code)
    return code


def _fill_descriptors() -> None:
    """Nothing that we open may become descriptor 0, 1 or 2 because the caller closed those."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(fd, True)
        os.close(fd)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        from .output import say

        say(_help())
        return 0
    name, rest = words[0], words[1:]
    if name == "help":
        name, rest = rest[0], ["--help"]
    if name in ("-V", "--version"):
        name = "version"
    if name not in COMMANDS:
        return _unknown(name)
    # Our own finder's message would name a module; a broken installation is a bug and shows as one.
    module = __import__(f"{__name__}.{name.replace('-', '_')}", fromlist=["main"])
    code: int = module.main(rest)
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join([_HEAD, *lines, "", _EXAMPLES])


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    from .output import complain

    near = get_close_matches(name, COMMANDS, n=1)
    guess = f" Did you mean `atoll {near[0]}`?" if near else ""
    complain(f"There is no command {name!r}.{guess} `atoll --help` lists them all.")
    return FAILED


def _guarded(command: Callable[[], int]) -> int:
    try:
        return command()
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        code = _explain(error)
        if code is None:
            raise
        return code


def _explain(error: BaseException) -> int | None:
    """Tell the user what happened, in a sentence; the exit code, or None for what is not ours to explain."""
    from .interrupts import Stopped
    from .output import OutputClosed, OutputFailed, complain

    if isinstance(error, Stopped):
        return error.exit_code
    if isinstance(error, OutputClosed):
        return CLOSED
    if not isinstance(error, Exception) or os.environ.get("ATOLL_DEBUG"):
        return None
    try:
        complain(_sentence(error))
    except (OutputClosed, OutputFailed):
        pass  # stderr is closed as well: the exit code is all that is left
    return FAILED


def _sentence(error: Exception) -> str:
    from ..errors import AtollError
    from .output import OutputFailed
    from .parsing import UsageError

    if isinstance(error, AtollError | UsageError | OutputFailed):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return f"A mistake in atoll itself: {error!r}. Set ATOLL_DEBUG=1 to see where, and please report it."
