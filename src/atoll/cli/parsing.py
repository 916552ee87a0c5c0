"""Words of the command line into options: argparse, with errors as one sentence and help that fits the terminal."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn


class UsageError(Exception):
    """The command line itself is wrong; the message says what to write instead."""


class Parser(argparse.ArgumentParser):
    """A parser for one command. `examples` and what follows close its help."""

    def __init__(self, command: str, usage: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"atoll {command}",
            usage=f"atoll {command} {usage}",
            description=description,
            epilog=epilog,
            formatter_class=_formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. `{self.prog} --help` explains.")

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
    return min(columns or 100, 110) - 2


def split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before `--`, and those after it, or None when there is no `--`."""
    if "--" not in words:
        return words, None
    index = words.index("--")
    return words[:index], words[index + 1 :]
