"""The command line. One file a command, imported when it is asked for; `atoll --help` imports none."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # what type checkers take for true; importing typing or collections.abc would cost `--help` 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FAILED = 125
NOT_FOUND = 127
CLOSED = 141

GROUPS = {
    "Run code": {
        "run": "run a command or a program in a sandbox of its own",
        "exec": "run a command or a cell in a sandbox that exists",
        "shell": "a terminal inside a sandbox",
        "repl": "a prompt for code that keeps its state from cell to cell",
        "cp": "copy files and directories into a sandbox or out of it",
    },
    "Sandboxes that exist": {
        "list": "the sandboxes that exist",
        "stop": "end what runs in a sandbox, and keep its files and variables",
        "resume": "continue a sandbox that was stopped, or an agent's run",
        "destroy": "end sandboxes and remove everything of them",
        "snapshot": "keep a sandbox as it is under a name; list, delete, export these",
        "rollback": "restore a snapshot of a sandbox",
        "fork": "copies of a sandbox that continue from its current state",
    },
    "Your files": {
        "diff": "what a sandbox has changed of its source",
        "apply": "apply a sandbox's changes to its source directory",
        "discard": "throw away what a sandbox has changed of its source",
        "policy": "what rules would do to a directory, before anything runs",
        "audit": "which accesses were refused to a sandbox",
        "codebase": "source trees that are stored here, for many sandboxes",
    },
    "Models": {
        "agent": "have a model work on a task in a sandbox",
        "ask": "have a model answer a question, with a sandbox at hand",
        "logs": "what agents did: list, show, follow, export, delete",
        "validate": "run a deterministic check behind a wall, and keep a sealed result",
        "mcp-serve": "serve sandboxes to MCP clients, over stdio or HTTP",
        "mcp-install": "write the configuration of an MCP client",
    },
    "This machine": {
        "providers": "the walls that atoll can build, and which of them work here",
        "doctor": "the layers of the wall here, and how to fix what is missing",
        "test": "try a wall from create to destroy, with figures",
        "packages": "the Python packages that are kept for the next sandbox",
        "init": "write a commented atoll.toml",
        "config": "every setting, its value, and where it comes from",
        "completion": "print a script that completes words in bash, zsh or fish",
        "version": "which atoll this is",
    },
}

COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

# Docker's words, and a few that others use.
_ELSEWHERE = {
    "ps": "`atoll list` shows the sandboxes",
    "ls": "`atoll list` shows the sandboxes, `atoll exec ID ls` the files of one",
    "rm": "`atoll destroy` ends a sandbox and removes everything of it",
    "rmi": "`atoll snapshot delete` removes a snapshot",
    "kill": "`atoll stop` ends what runs in a sandbox, `atoll destroy` the sandbox",
    "inspect": "`atoll list --json` tells everything about the sandboxes",
    "images": "`atoll snapshot list` shows what a sandbox can begin with",
    "start": "`atoll resume` continues a sandbox that was stopped",
    "unpause": "`atoll resume` continues a sandbox that was paused",
    "commit": "`atoll snapshot create` keeps a sandbox as it is under a name",
    "save": "`atoll snapshot export` writes one as a file",
    "load": "`atoll snapshot import` reads one from a file",
    "restore": "`atoll rollback` restores a snapshot",
    "attach": "`atoll shell ID` is a terminal inside a sandbox",
    "create": "`atoll run --keep` makes a sandbox that stays",
    "clone": "`atoll fork` copies a sandbox",
    "info": "`atoll doctor` tells what works here",
    "login": "atoll needs no account",
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
    lines = []
    for title, group in GROUPS.items():
        lines += [f"{title}:", *(f"  {name.ljust(width)}  {summary}" for name, summary in group.items()), ""]
    return "\n".join([_HEAD, *lines, _EXAMPLES])


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    from .output import complain

    if name in _ELSEWHERE:
        complain(f"There is no command {name!r}; {_ELSEWHERE[name]}.")
        return FAILED
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
        # An interrupt may have come between the call of a coroutine function and its first step: Python would tell.
        import warnings

        warnings.simplefilter("ignore", RuntimeWarning)
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
