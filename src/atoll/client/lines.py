"""Output by the line, or as bytes, for callbacks that want it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .decode import TextChunks

LONGEST = 1 << 20
"""Characters of a line; a longer one comes in pieces of so many, lest one without an end fill the memory."""


class ByLine(NamedTuple):
    """What `by_line` gives. It keeps nothing, so that one can hear many commands at once."""

    callback: Callable[[str], Any]


def by_line(callback: Callable[[str], Any]) -> ByLine:
    """For `on_stdout` and `on_stderr`: have them called with whole lines, without their line ends.

        sandbox.run("make", on_stdout=by_line(print))

    What follows the last line end comes when the command or cell has ended. A line of more than a million characters
    comes in pieces.
    """
    return ByLine(callback)


class ByBytes(NamedTuple):
    """What `by_bytes` gives."""

    callback: Callable[[bytes], Any]


def by_bytes(callback: Callable[[bytes], Any]) -> ByBytes:
    """For `on_stdout` and `on_stderr`: have them called with bytes, as they were written.

    sandbox.run("tar c .", on_stdout=by_bytes(archive.write))
    """
    return ByBytes(callback)


class Lines:
    """One stream of bytes as lines."""

    def __init__(self) -> None:
        self._chunks = TextChunks()
        self._open: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole now."""
        return self._take(self._chunks.feed(data))

    def finish(self) -> list[str]:
        """What is left when the stream has ended."""
        lines = self._take(self._chunks.finish())
        return [*lines, self._close("")] if self._size else lines

    def _take(self, text: str) -> list[str]:
        *ended, rest = text.split("\n")
        lines = [line for end in ended for line in self._within(end)]
        self._open.append(rest)
        self._size += len(rest)
        if self._size > LONGEST:
            *pieces, rest = _pieces(self._close(""))
            lines += pieces
            self._open, self._size = [rest], len(rest)
        return lines

    def _within(self, end: str) -> list[str]:
        """The line that ends here, in pieces if it is too long."""
        return _pieces(self._close(end).removesuffix("\r"))

    def _close(self, end: str) -> str:
        line = "".join([*self._open, end])
        self._open, self._size = [], 0
        return line


def _pieces(line: str) -> list[str]:
    return [line[start : start + LONGEST] for start in range(0, len(line), LONGEST)] or [line]
