"""Words of the command line into options: argparse, with errors as one sentence and help that fits the terminal."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

# argparse would translate its few words, and import `locale` and search the disk for it on every start.
argparse._ = str  # type: ignore[attr-defined]


class UsageError(Exception):
    """The command line itself is wrong; the message says what to write instead."""


class Described(Exception):
    """A command's parser, in place of what it would have parsed; see `Parser.describing`."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """A parser for one command.

    Args:
        usage: what follows the name of the command.
        epilog: what closes the help, such as examples.
        habits: options that people know from elsewhere, and what to say here.
    """

    describing = False
    """While it is set, whoever parses gets `Described`: so a command tells its options without running."""

    def __init__(
        self, command: str, usage: str, description: str, epilog: str, habits: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            prog=f"atoll {command}",
            usage=f"atoll {command} {usage}",
            description=description,
            epilog=epilog,
            formatter_class=_formatter,
            allow_abbrev=False,
        )
        self._habits = habits or {}

    def parse_command(self, words: list[str], operands: Callable[[list[str]], int] = lambda _: 0) -> argparse.Namespace:
        """Options up to the first word of a command; that word and all after it, options too, are the command's.

        Gives `words`, the command, `after`, what follows a `--` in its place, or None where there is none, and
        `late`, the first word of the command that would have been a long option of ours in front of it.

        Args:
            operands: how many words come before the command, such as an id, by the options in front of them.

        Raises:
            UsageError: an option in front of the command makes no sense.
        """
        options, plain, rest = self.leading(words, operands)
        args = self.parse_args([*options, *plain])
        args.words, args.after = ([], rest[1:]) if rest[:1] == ["--"] else (rest, None)
        args.late = next((word for word in args.words if self._is_long(word)), None)
        return args

    def leading(self, words: list[str], operands: Callable[[list[str]], int]) -> tuple[list[str], list[str], list[str]]:
        """The options in front of a command with their values, the operands there, and all from its first word on."""
        options: list[str] = []
        plain: list[str] = []
        rest = list(words)
        while rest and rest[0] != "--":
            if is_option(rest[0]):
                count = self.length(rest)
                options += rest[:count]
                del rest[:count]
            elif len(plain) < operands(options):
                plain.append(rest.pop(0))
            else:
                break
        return options, plain, rest

    def _is_long(self, word: str) -> bool:
        return word.startswith("--") and word.partition("=")[0] in self._option_string_actions

    def length(self, words: list[str]) -> int:
        """How many words the option at the front is: one, or two with its value."""
        word = words[0]
        whole = word.startswith("--") or word in self._option_string_actions
        letters = [word] if whole else [f"-{letter}" for letter in word[1:]]
        for at, name in enumerate(letters, 1):
            action = self._option_string_actions.get(name)
            if action is None:
                break  # nothing of ours, or with its value behind a `=`
            if action.nargs != 0:
                follows = len(words) > 1 and (action.nargs != "?" or not is_option(words[1]))
                return 1 + (at == len(letters) and follows)
        return 1

    def described(self) -> list[tuple[str, str]]:
        """Each long option, and what it is for."""
        return [
            (name, str(action.help).partition(";")[0].partition(" (")[0])
            for name, action in self._option_string_actions.items()
            if name.startswith("--") or action.option_strings == [name]
        ]

    def option(self, word: str) -> tuple[list[str], str]:
        """All names of the option that a word ends with, and the name of its value."""
        action = self._option_string_actions.get(word) or self._option_string_actions.get(f"-{word[-1:]}")
        return ([], "") if action is None else (list(action.option_strings), str(action.metavar))

    def parse_known_args(self, *given: Any, **keywords: Any) -> Any:
        if Parser.describing:
            raise Described(self)
        return super().parse_known_args(*given, **keywords)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. {self._advice(message)}")

    def _advice(self, message: str) -> str:
        words = message.removeprefix("unrecognized arguments: ").split()
        if message.startswith("unrecognized"):
            for word in words:
                name = word.partition("=")[0]
                if name in self._habits:
                    return self._habits[name]
                if near := self._nearest(name):
                    return f"Did you mean {near}?"
        return f"`{self.prog} --help` explains."

    def _nearest(self, name: str) -> str | None:
        from difflib import get_close_matches

        known = [each for each in self._option_string_actions if each.startswith("--")]
        return next(iter(get_close_matches(name, known, n=1)), None) if name.startswith("--") else None

    def _print_message(self, message: str, file: object = None) -> None:
        from .output import say

        say(message.rstrip("\n"))


def is_option(word: str) -> bool:
    """Whether a word begins as options do."""
    return len(word) > 1 and word.startswith("-")


def _formatter(prog: str) -> argparse.HelpFormatter:
    # With a width given, argparse does not import shutil, which it would do on every start.
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=_width())


def _width() -> int:
    try:
        columns = os.get_terminal_size(1).columns
    except OSError:
        columns = 0
    return min(columns or 80, 110) - 2


def split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before `--`, and those after it, or None when there is no `--`."""
    if "--" not in words:
        return words, None
    index = words.index("--")
    return words[:index], words[index + 1 :]
