"""`atoll repl`: cells typed at a prompt, or piped in, with their results shown as far as a terminal can."""

from __future__ import annotations

import keyword
import os
import signal
from argparse import Namespace
from collections.abc import Iterator

from ..errors import AtollError, SandboxGone
from ..guest import toolchains
from ..home import state_dir
from ..sync.sandbox import Sandbox
from . import replcells, showing
from .interrupts import Interrupts
from .options import add_env_option, add_sandbox_options, refuse_wishes, start_directory
from .output import STDERR, STDOUT, OutputFailed, colourful, complain, paint, write
from .parsing import Parser, UsageError
from .places import Place, find
from .replcommands import Commands, Leave, is_command
from .replinput import Keyboard, Pipe
from .replturn import Turns
from .values import duration, variables

_DESCRIPTION = """\
Type code, see what it gives, and go on with what is there: a prompt for a
sandbox that exists, or for a new one that is gone when you leave (Ctrl-D).
Pictures become files of the current directory. `:help` lists what else can be
said. Without a terminal the code comes from standard input, until a cell fails.
"""

_EPILOG = """\
examples:
  atoll repl                       Python, in a fresh sandbox
  atoll repl --packages pandas,matplotlib
  atoll repl --lang bash --source .
  atoll repl sb-k3                 with the variables of one that exists
  echo 'print(6 * 7)' | atoll repl

exit code:
  0; without a terminal 1 when a cell failed, 124 after its timeout; 125 when
  atoll itself fails
"""

_DAY = 86400.0
_LEAVING = ("exit", "quit", "exit()", "quit()")


def main(words: list[str]) -> int:
    parser = Parser("repl", "[OPTIONS] [ID]", _DESCRIPTION, _EPILOG)
    parser.add_argument("id", nargs="?", metavar="ID", help="a sandbox that exists (default: a new one)")
    parser.add_argument("--lang", metavar="NAME", help="the language: python (default), javascript, typescript, bash, "
        "sh, go, rust, java, r, or jupyter:KERNEL")  # fmt: skip
    parser.add_argument("--context", metavar="NAME", help="which context; it is made if it is not there (default: "
        "main, or the one of the language)")  # fmt: skip
    parser.add_argument("-t", "--timeout", metavar="TIME", help="end a cell after so many seconds (default: never)")
    add_env_option(parser)
    add_sandbox_options(parser)
    args = parser.parse_args(words)
    args.timeout = None if args.timeout in (None, "none") else duration(args.timeout, "--timeout")
    env = variables(args.env)
    interrupts = Interrupts()
    if args.id is not None:
        refuse_wishes(args)
        return _Repl(find(args.id), args, env, args.workdir).run()
    place = Place(args, interrupts, _DAY)
    with place as sandbox:
        place.announce()
        return _Repl(sandbox, args, env, start_directory(args)).run()


class _Repl:
    def __init__(self, sandbox: Sandbox, args: Namespace, env: dict[str, str], workdir: str | None) -> None:
        self._sandbox = sandbox
        self._timeout: float | None = args.timeout
        self._leaving = args.id is None and not args.keep and not args.reuse
        self._typed = os.isatty(0) and os.isatty(1)
        self._context, self._language, self._number = _open(sandbox, args, env, workdir)
        self._rule = replcells.rule_for(self._language, self._read_script)
        self._commands = Commands(sandbox, self._context)

    def run(self) -> int:
        """Until the user leaves or the input ends; gives the exit code."""
        try:
            return self._converse() if self._typed else self._obey()
        except Leave:
            return 0

    def _converse(self) -> int:
        keyboard = Keyboard(os.path.join(state_dir(), "repl_history"), self._names)

        def ask(line: str) -> str | None:
            # What the cell has said of this line becomes the prompt, so that editing draws it again.
            write(STDOUT, b"\r")
            return keyboard.read(line)

        turns = Turns(self._sandbox, self._context, self._timeout, ask)
        self._greet()
        # At the prompt Ctrl-C clears the line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for cell in self._cells(keyboard):
                self._attempt(cell, turns)
        finally:
            signal.signal(signal.SIGINT, before)
        return 0

    def _cells(self, keyboard: Keyboard) -> Iterator[str]:
        waiting = ""
        while True:
            try:
                cell, waiting = self._type(keyboard, waiting)
            except KeyboardInterrupt:
                write(STDOUT, b"\n")
                waiting = ""
                continue
            if cell is None:
                write(STDOUT, b"\n")
                return
            keyboard.remember(cell)
            yield cell

    def _attempt(self, cell: str, turns: Turns) -> None:
        """What goes wrong is told, and the next cell may go better; without a sandbox it cannot."""
        try:
            self._perform(cell, turns)
        except SandboxGone:
            raise
        except (AtollError, OutputFailed) as error:
            complain(str(error))
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}.")

    def _type(self, keyboard: Keyboard, waiting: str) -> tuple[str | None, str]:
        """A cell as it is typed, or None at Ctrl-D, and the line that came after it, if one showed where it ended."""
        lines = waiting.split("\n") if waiting else []
        while not lines or not self._is_whole(lines):
            line = keyboard.read(self._prompt(more=bool(lines)))
            if line is None:
                return ("\n".join(lines) if lines else None), ""
            if lines and self._rule.begins_another(lines, line):
                return "\n".join(lines), line
            if lines or line.strip():
                lines += line.split("\n")
        return "\n".join(lines), ""

    def _is_whole(self, lines: list[str]) -> bool:
        return is_command(lines[0]) or self._rule.is_whole(lines)

    def _prompt(self, *, more: bool) -> str:
        text = f"In [{self._number}]: "
        if more:
            text = "…: ".rjust(len(text))
        # The marks tell readline what takes no room.
        return f"\x01\x1b[32m\x02{text}\x01\x1b[0m\x02" if colourful() else text

    def _obey(self) -> int:
        pipe = Pipe()
        turns = Turns(self._sandbox, self._context, self._timeout, lambda _line: pipe.read())
        for cell in replcells.from_pipe(self._rule, pipe, is_command):
            code = self._perform(cell, turns)
            if code:
                return code
        return 0

    def _perform(self, cell: str, turns: Turns) -> int:
        """Run a cell or a command; gives what the exit code of a script would be."""
        if is_command(cell):
            self._commands.run(cell)
            if cell.startswith(":reset"):
                self._number = 1
            return 0
        if cell.strip() in _LEAVING:
            raise Leave
        if not cell.strip():
            return 0
        self._commands.cells.append(cell.rstrip())
        label = paint(f"Out[{self._number}]: ", "red", wanted=colourful()) if self._typed else ""
        show = showing.Showing(label, STDOUT if self._typed else STDERR)
        try:
            execution = turns.run(cell, show)
        finally:
            if self._typed:
                show.fresh_line()
        self._number = 1 if execution.state_lost else execution.count + 1
        return showing.conclude(execution, self._timeout)

    def _greet(self) -> None:
        end = "it is gone when you leave with Ctrl-D" if self._leaving else "Ctrl-D leaves"
        hint = f"; {self._rule.hint}" if self._rule.hint else ""
        text = f"{self._language} in {self._sandbox.id}, {end}{hint}; :help lists what else can be said"
        write(STDERR, f"{paint(text, 'faint', wanted=colourful(STDERR))}\n".encode())

    def _names(self) -> list[str]:
        if toolchains.find(self._language) is not toolchains.LANGUAGES[0]:
            return []
        try:
            return [*keyword.kwlist, *(each.name for each in self._sandbox.variables.list(self._context))]
        except AtollError:
            return []  # a wish for help with typing is no reason to fail

    def _read_script(self, script: str) -> str:
        """What the shell says of a script that it only reads."""
        return self._sandbox.run([self._language, "-n", "-c", script], timeout=10).stderr


def _open(sandbox: Sandbox, args: Namespace, env: dict[str, str], workdir: str | None) -> tuple[str, str, int]:
    """The context to work in, made if it is not there: its name, its language, and the number of its next cell."""
    wanted = _language(args.lang or "python")
    name = args.context or ("main" if wanted == "python" else wanted)
    for context in sandbox.contexts.list():
        if context.name == name:
            if args.lang is not None and _language(context.language) != wanted:
                raise UsageError(f"The context {name} is for {context.language}; name another with --context.")
            if env or workdir is not None:
                raise UsageError(f"The context {name} exists already; leave out -e and --workdir, or name another.")
            return name, _language(context.language), context.cells + 1
    sandbox.contexts.create(name, language=wanted, env=env or None, workdir=workdir)
    return name, wanted, 1


def _language(name: str) -> str:
    """The language's own name, whichever of its names was used. An unknown one is for the sandbox to refuse."""
    known = toolchains.find(name)
    return name if known is None else known.name
