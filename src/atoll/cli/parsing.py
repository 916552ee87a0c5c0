"""Words of the command line into options: argparse, with errors as one sentence and help that fits the terminal."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

# argparse would translate its few words, and import `locale` and search the disk for it on every start.
argparse._ = str  # type: ignore[attr-defined]


class UsageError(Exception):
    """The command line itself is wrong; the message says what to write instead."""


class Parser(argparse.ArgumentParser):
    """A parser for one command.

    Args:
        usage: what follows the name of the command.
        epilog: what closes the help, such as examples.
        hint: what a wrong option may have been meant to be.
    """

    def __init__(self, command: str, usage: str, description: str, epilog: str, hint: str = "") -> None:
        super().__init__(
            prog=f"atoll {command}",
            usage=f"atoll {command} {usage}",
            description=description,
            epilog=epilog,
            formatter_class=_formatter,
            allow_abbrev=False,
        )
        self._hint = hint

    def error(self, message: str) -> NoReturn:
        hint = self._hint if self._hint and "required" not in message else f"`{self.prog} --help` explains."
        raise UsageError(f"{message[:1].upper()}{message[1:]}. {hint}")

    def _print_message(self, message: str, file: object = None) -> None:
        from .output import say

        say(message.rstrip("\n"))


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
