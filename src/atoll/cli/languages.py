"""The language of a program, by name or by file. The table is the guest's, which runs cells in the same languages."""

from __future__ import annotations

import os

from ..errors import InvalidInput
from ..guest import toolchains
from ..guest.toolchains import LANGUAGES, Language
from ..policy.text import shown

__all__ = ["LANGUAGES", "Language", "by_file", "by_name"]


def by_name(name: str) -> Language:
    """Raises InvalidInput for a language that is not known."""
    language = toolchains.find(name)
    if language is None:
        raise InvalidInput(f"--lang is {shown(name)}; the known languages are {toolchains.known()}.")
    return language


def by_file(path: str) -> Language:
    """Raises InvalidInput when the name of the file does not tell."""
    suffix = os.path.splitext(path)[1].lower()
    for language in LANGUAGES:
        if suffix in language.suffixes:
            return language
    raise InvalidInput(f"The language of {shown(path)} cannot be told from its name; say --lang {toolchains.known()}.")
