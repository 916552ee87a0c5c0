"""Where a cell ends, when it is typed line by line. Pure but for shells, which are asked inside the sandbox."""

from __future__ import annotations

import ast
import codeop
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..guest import toolchains

_GOES_ON = re.compile(r"\s|#|[)\]}]|(?:else|elif|except|finally)\b|$")
_UNFINISHED = re.compile(r"end[ -]of[ -]file|EOF|[Uu]nterminated")


class Rule(Protocol):
    """How a language is typed."""

    hint: str

    def is_whole(self, lines: list[str]) -> bool:
        """Whether these lines, as a user has typed them so far, are a cell."""

    def begins_another(self, lines: list[str], line: str) -> bool:
        """Whether a further line is not of this cell, but the first of the next."""


class PythonRule:
    """As in Python's own prompt: a block ends with an empty line, or with a line that cannot be of it.

    A block of one line, such as `while True: pass`, is whole.
    """

    hint = ""

    def __init__(self) -> None:
        self._compiler = codeop.CommandCompiler()
        self._compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def is_whole(self, lines: list[str]) -> bool:
        # In these modes Python says whether more must come. "single" waits for the end of a block; of several
        # statements, as they are pasted, it knows nothing, and "exec" does.
        whole = self._compiles(lines, "exec")
        return whole is not None and (self._compiles(lines, "single") is not None or (whole and len(lines) == 1))

    def is_simple(self, line: str) -> bool:
        """Whether no further line can belong to it, not even an `else`."""
        return self._compiles([line], "single") is not None

    def begins_another(self, lines: list[str], line: str) -> bool:
        if _GOES_ON.match(line):
            return False
        return self._compiles([*lines, ""], "exec") is True

    def _compiles(self, lines: list[str], mode: str) -> bool | None:
        """Whether they compile; None when more must come. What is wrong is for the sandbox's Python to tell."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return None if self._compiler("\n".join(lines), "<cell>", mode) is None else True
            except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
                return False


class ShellRule:
    """A shell knows itself whether a command is whole; `check` asks it, and gives what it complains about."""

    hint = "a command goes on while it is open"

    def __init__(self, check: Callable[[str], str]) -> None:
        self._check = check

    def is_whole(self, lines: list[str]) -> bool:
        if lines[-1].endswith("\\"):
            return False
        return _UNFINISHED.search(self._check("\n".join(lines))) is None

    def begins_another(self, lines: list[str], line: str) -> bool:
        return False


class BracketRule:
    """Other languages: a cell goes on while a bracket is open or its line ends with a backslash."""

    hint = "a cell goes on while a bracket is open; an empty line ends it"

    def is_whole(self, lines: list[str]) -> bool:
        if not lines[-1].strip():
            return True
        text = "\n".join(lines)
        opened = sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
        return opened <= 0 and not lines[-1].endswith("\\")

    def begins_another(self, lines: list[str], line: str) -> bool:
        return False


class ProgramRule:
    """Languages that run a whole program each time."""

    hint = "a cell is a whole program; two empty lines end it"

    def is_whole(self, lines: list[str]) -> bool:
        return len(lines) > 1 and not lines[-1].strip() and not lines[-2].strip()

    def begins_another(self, lines: list[str], line: str) -> bool:
        return False


def rule_for(language: str, check: Callable[[str], str]) -> Rule:
    """`check` has the shell of the sandbox read a script without running it."""
    known = toolchains.find(language)
    kind = "" if known is None else known.kind
    if kind == toolchains.PYTHON or language.startswith("jupyter:python"):
        return PythonRule()
    if kind == toolchains.SHELL:
        return ShellRule(check)
    return ProgramRule() if kind == toolchains.FILE else BracketRule()


def from_pipe(rule: Rule, lines: Iterable[str], is_command: Callable[[str], bool]) -> Iterator[str]:
    """The cells of a text that nobody types: Python statement by statement, other languages as a whole.

    Unlike at a prompt an empty line ends nothing, since functions have them.
    """
    cell: list[str] = []
    for line in lines:
        if cell and rule.begins_another(cell, line):
            yield "\n".join(cell)
            cell = []
        if not cell and not line.strip():
            continue
        cell.append(line)
        alone = len(cell) == 1 and (is_command(line) or (isinstance(rule, PythonRule) and rule.is_simple(line)))
        if alone:
            yield line
            cell = []
    if cell:
        yield "\n".join(cell)
