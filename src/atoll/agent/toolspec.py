"""What a tool is to an agent: a name, a description, the form of its arguments, and a call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ..errors import InvalidInput

# What a tool gives at the most, in characters. How much of it a model gets to see is the loop's decision.
MOST_TEXT = 1_000_000
# The same for its images, in characters of base64.
MOST_IMAGES = 8_000_000
# What a model may write as the arguments of one call, in characters.
MOST_ARGUMENTS = 4_000_000

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Outcome(NamedTuple):
    """What a call gave. `images` are pairs of a MIME type and base64."""

    text: str
    failed: bool = False
    images: tuple[tuple[str, str], ...] = ()


class Tool(NamedTuple):
    """`call` gets arguments that `check_arguments` let pass, and tells a failure in its outcome instead of raising.
    An `idempotent` tool may be run again when nobody knows whether it ran."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[dict[str, Any]], Awaitable[Outcome]]
    idempotent: bool = False

    def definition(self) -> dict[str, Any]:
        """The tool as models are told of it."""
        about = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": about}


def check_name(name: str) -> str:
    """The name, if models can call a tool by it.

    Raises:
        InvalidInput: they cannot.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} cannot be the name of a tool: write 1 to 64 of the letters a-z and A-Z, digits, _ and -."
        )
    return name


def by_name(tools: list[Tool]) -> dict[str, Tool]:
    """The tools by their names.

    Raises:
        InvalidInput: two have the same name, or one has a name that no model can call.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        if check_name(tool.name) in found:
            raise InvalidInput(f"Two tools have the name {tool.name!r}: give one of them another name.")
        found[tool.name] = tool
    return found


def bounded(text: str) -> str:
    """The text, or its beginning and how much of it is missing."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n[{len(text) - MOST_TEXT} more characters were cut off]"


def check_arguments(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The arguments that a model wrote as JSON, if they fit the schema. No text at all stands for no arguments.

    Raises:
        InvalidInput: they do not; the sentence tells the model what to write instead.
    """
    from ..schema import fitting, parsed

    arguments = parsed(text, MOST_ARGUMENTS)
    fitting(schema, arguments, size=len(text))
    return arguments
