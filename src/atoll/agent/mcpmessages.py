"""What is done to a message of an MCP server before anything else reads it. Pure; a server is not trusted."""

from __future__ import annotations

from typing import Any

# The longest message, in bytes.
LONGEST = 4 << 20
# What a message may hold at the most: a value of three bytes in JSON takes fifty times as much as an object of Python.
MOST_VALUES = 200_000
# The parts of an answer, each of which costs far more to check than its bytes tell.
MOST_PARTS = 1000
MOST_TOOLS = 1000


def is_crowded(data: bytes) -> bool:
    """Whether a text in JSON holds more than `MOST_VALUES` values. Commas and brackets within its strings are none."""
    if marks(data) <= MOST_VALUES:
        return False
    # Left to right, so of an even number of backslashes before a quotation mark none is left, of an odd one one.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * MOST_VALUES + 4:
        return True  # more strings than so many values can be or name
    return marks(b"".join(plain.split(b'"')[::2])) > MOST_VALUES


def marks(data: bytes) -> int:
    """As many values as a text in JSON can hold, or more."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def tame(result: dict[str, Any]) -> None:
    """Take out of an answer what would be run, and what would be too much.

    The form of a tool's answers is for the SDK to check, which runs the regular expressions in it: a server may write
    one that takes for ever.
    """
    tools = result.get("tools")
    if isinstance(tools, list):
        del tools[MOST_TOOLS + 1 :]  # one too many is refused by who counts them
        for tool in tools:
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
    content = result.get("content")
    if isinstance(content, list) and len(content) > MOST_PARTS:
        told = f"[{len(content) - MOST_PARTS} more parts of the answer were left out]"
        content[MOST_PARTS:] = [{"type": "text", "text": told}]
