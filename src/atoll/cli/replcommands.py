"""What can be said in `atoll repl` besides code: a colon and a word."""

from __future__ import annotations

import os
import re

from ..errors import InvalidInput
from ..policy.sizes import format_size
from ..sync.sandbox import Sandbox
from .output import say, table

HELP = """\
:help         this
:vars         the variables: name, type, size and value in short
:files [DIR]  the files of the working directory, or of DIR
:save FILE    write the cells of this session to a file on this machine
:reset        start afresh: variables and all that runs in the context are gone
:quit         leave, as Ctrl-D does

Ctrl-C interrupts a cell, and what was made before stays. Tab completes the
names of variables, the arrow keys bring back what was typed."""

_WIDEST = 60


class Leave(Exception):
    """The user has seen enough."""


def is_command(line: str) -> bool:
    """No code begins so, not even in a shell, where a colon is followed by a space."""
    return re.match(r":[a-z]+(\s|$)", line) is not None


class Commands:
    """Commands about one context of a sandbox. `cells` is what has run in this session."""

    def __init__(self, sandbox: Sandbox, context: str) -> None:
        self._sandbox = sandbox
        self._context = context
        self.cells: list[str] = []

    def run(self, line: str) -> None:
        """Raises AtollError, OSError, and Leave."""
        name, _, rest = line[1:].strip().partition(" ")
        rest = rest.strip()
        if name in ("quit", "exit", "q"):
            raise Leave
        command = {"help": self._help, "vars": self._vars, "files": self._files, "save": self._save,
                   "reset": self._reset}.get(name)  # fmt: skip
        if command is None:
            raise InvalidInput(f"There is no :{name}; :help lists what there is.")
        command(rest)

    def _help(self, rest: str) -> None:
        say(HELP)

    def _vars(self, rest: str) -> None:
        found = self._sandbox.variables.list(self._context)
        if not found:
            say("There are no variables yet.")
            return
        rows = [[each.name, each.type, format_size(each.size), _short(each.text)] for each in found]
        for row in table([["NAME", "TYPE", "SIZE", "VALUE"], *rows], {}, colours=False):
            say(row)

    def _files(self, rest: str) -> None:
        found = sorted(self._sandbox.files.list(rest or self._directory()), key=lambda each: each.name)
        rows = [[format_size(each.size) if each.type == "file" else each.type, _short(each.name)] for each in found]
        for row in table(rows, {}, colours=False) if rows else ["There are no files."]:
            say(row)

    def _directory(self) -> str:
        for context in self._sandbox.contexts.list():
            if context.name == self._context:
                return context.workdir
        return self._sandbox.info.spec.workdir

    def _save(self, rest: str) -> None:
        if not rest:
            raise InvalidInput("Say where to, as in :save session.py.")
        with open(os.path.expanduser(rest), "x", encoding="utf-8") as file:
            file.write("".join(f"{cell}\n\n" for cell in self.cells))
        say(f"{len(self.cells)} cells are in {rest}.")

    def _reset(self, rest: str) -> None:
        self._sandbox.contexts.restart(self._context)


def _short(text: str) -> str:
    """One line of what a guest says, without control characters."""
    shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"
