"""What a docstring tells about a function and its parameters."""

from __future__ import annotations

import re
from typing import NamedTuple

_SECTION = re.compile(r"^[A-Z][A-Za-z ]{2,20}:\s*$")
_PARAMETER = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_HEADS = ("Args:", "Arguments:", "Parameters:")


class Told(NamedTuple):
    summary: str
    parameters: dict[str, str]


def read(docstring: str | None) -> Told:
    """Its first paragraph, and what a section `Args:` of Google's style says of each parameter."""
    if not docstring:
        return Told("", {})
    from inspect import cleandoc

    lines = cleandoc(docstring).splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.match(line):
            break
        summary.append(line.strip())
    return Told(" ".join(summary), _parameters(lines))


def _parameters(lines: list[str]) -> dict[str, str]:
    begin = next((number + 1 for number, line in enumerate(lines) if line.strip() in _HEADS), len(lines))
    found: dict[str, str] = {}
    name, margin = "", -1
    for line in lines[begin:]:
        text = line.strip()
        if not text:
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            break
        margin = indent if margin < 0 else margin
        match = _PARAMETER.match(text) if indent <= margin else None
        if match:
            name, text = match[1], match[2]
            found[name] = text
        elif name:
            # A line that goes on with what was said of the parameter above.
            found[name] = f"{found[name]} {text}".strip()
    return found
