"""Input for a command or a file: text, bytes, a file object, or an iterable of pieces."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

from ..errors import InvalidInput
from ..io import IO
from ..policy.text import shown


class Readable(Protocol):
    """A file object, opened for reading. In binary mode it is faster."""

    def read(self, size: int, /) -> Any: ...


Input: TypeAlias = (
    "str | bytes | bytearray | memoryview | Readable | Iterable[str | bytes] | AsyncIterable[str | bytes]"
)

_AT_ONCE = 1 << 18


class Feed:
    """Gives input in pieces of at most the size asked for.

    Raises:
        InvalidInput: the source is nothing that can be read, from here or from `read`.
    """

    def __init__(self, io: IO, source: Input) -> None:
        self._io = io
        self._rest: bytes | memoryview = b""
        self._file: Readable | None = None
        self._pieces: Iterator[str | bytes] | AsyncIterator[str | bytes] | None = None
        if isinstance(source, str | bytes | bytearray | memoryview):
            self._rest = _as_bytes(source)
        elif hasattr(source, "read"):
            self._file = cast("Readable", source)
        elif isinstance(source, AsyncIterable):
            self._pieces = source.__aiter__()
        elif _has_pieces(source):
            self._pieces = iter(source)
        else:
            raise InvalidInput(
                f"{shown(source)} cannot be read; give text, bytes, a file object or an iterable of bytes."
            )

    def at_once(self) -> bytes | None:
        """All of it, where it is known and small enough to go along with the request."""
        if self._file is not None or self._pieces is not None or len(self._rest) > _AT_ONCE:
            return None
        return bytes(self._rest)

    async def read(self, size: int) -> bytes | memoryview:
        """The next piece; empty at the end."""
        while not self._rest:
            piece = await self._next(size)
            if piece is None:
                return b""
            self._rest = _as_bytes(piece)
        piece, self._rest = self._rest[:size], memoryview(self._rest)[size:]
        return piece

    async def _next(self, size: int) -> Any:
        """The next thing that the source gives, or None at its end."""
        if self._file is not None:
            return await self._read_file(self._file, size) or None
        if isinstance(self._pieces, AsyncIterator):
            return await anext(self._pieces, None)
        return None if self._pieces is None else next(self._pieces, None)

    async def _read_file(self, file: Readable, size: int) -> Any:
        piece = await self._io.in_thread(lambda: file.read(size))
        if hasattr(piece, "__await__"):
            piece = await piece
        if piece is None:
            raise InvalidInput(f"{shown(file)} does not block and has nothing to read now; give one that waits.")
        return piece


def _has_pieces(value: object) -> TypeGuard[Iterable[str | bytes]]:
    """Not so a mapping: its keys could be read, and would be half of it."""
    return isinstance(value, Iterable) and not isinstance(value, Mapping)


def _as_bytes(piece: object) -> bytes | memoryview:
    if isinstance(piece, bytes):
        return piece
    if isinstance(piece, str):
        try:
            return piece.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidInput("The input holds half a surrogate pair, which stands for no byte.") from None
    if isinstance(piece, bytearray | memoryview):
        return memoryview(piece).cast("B")
    raise InvalidInput(f"The input gave {shown(piece)}; it must give bytes or text.")
