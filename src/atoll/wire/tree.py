"""A tree of files as a byte stream: for each entry a header, then the content of a file.

The header is `u32 length` (little endian) and so many bytes of JSON; a length of 0 ends the tree.
Both sides use this module, and neither trusts the other: `Reader` passes on nothing that it has not
checked. What it cannot know is what is already on a disk: whoever unpacks must not follow links.
"""

from __future__ import annotations

import json
import struct
from typing import Any, List, NamedTuple, Optional, Union

FILE, DIRECTORY, SYMLINK = "file", "directory", "symlink"
MAX_PATH = 4096
MAX_NAME = 255

_LENGTH = struct.Struct("<I")
_MAX_HEADER = 1 << 16
_MAX_SIZE = 1 << 62
_MAX_TIME = 1 << 40
_FIELDS = frozenset(("path", "type", "mode", "mtime", "size", "target"))


class BadTree(Exception):
    """The stream is not one that an honest writer makes."""


class Entry(NamedTuple):
    """One file, directory or symbolic link. Bytes that are not UTF-8 are lone surrogates in `path` and `target`.

    `path` is relative and goes down only. `mode` has the nine permission bits.
    """

    path: str
    type: str
    mode: int = 0o644
    mtime: float = 0.0
    size: int = 0
    target: Optional[str] = None


class Writer:
    """Makes the stream. A directory comes before what is in it."""

    def __init__(self) -> None:
        self._left = 0

    def entry(self, entry: Entry) -> bytes:
        """Raises ValueError for an entry that no reader would take, or while content is missing."""
        if self._left:
            raise ValueError("%d bytes of the last file are missing" % self._left)
        fields = entry._asdict()
        try:
            check(fields)
        except BadTree as error:
            raise ValueError(str(error)) from error
        header = json.dumps(fields, separators=(",", ":")).encode("ascii")
        self._left = entry.size
        return _LENGTH.pack(len(header)) + header

    def data(self, content: bytes) -> bytes:
        """Raises ValueError for more content than was announced."""
        if len(content) > self._left:
            raise ValueError("more content than the entry announced")
        self._left -= len(content)
        return content

    def end(self) -> bytes:
        if self._left:
            raise ValueError("%d bytes of the last file are missing" % self._left)
        return _LENGTH.pack(0)


class Reader:
    """Takes the stream apart, as it comes.

    Args:
        max_entries, max_bytes: where a stream stops being believed.
    """

    def __init__(self, max_entries: int = 1 << 24, max_bytes: int = _MAX_SIZE) -> None:
        self.done = False
        self.entries = 0
        self._buffer = bytearray()
        self._left = 0
        self._max_entries = max_entries
        self._bytes_left = max_bytes

    def feed(self, data: bytes) -> List[Union[Entry, bytes]]:
        """The entries in `data`, and after each file's entry pieces of its content.

        Raises:
            BadTree: the stream is broken, and of no more use.
        """
        self._buffer += data
        found: List[Union[Entry, bytes]] = []
        while True:
            item = self._content() if self._left else self._header()
            if item is None:
                return found
            found.append(item)

    def close(self) -> None:
        """No more comes. Raises BadTree when the stream was not whole."""
        if not self.done:
            raise BadTree("the tree ends in the middle")

    def _content(self) -> Optional[bytes]:
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: len(piece)]
        self._left -= len(piece)
        return piece or None

    def _header(self) -> Optional[Entry]:
        if self.done:
            if self._buffer:
                raise BadTree("something follows the end of the tree")
            return None
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _MAX_HEADER:
            raise BadTree("a header of %d bytes" % length)
        if len(self._buffer) < _LENGTH.size + length:
            return None
        header = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
        del self._buffer[: _LENGTH.size + length]
        if not length:
            self.done = True
            return self._header()
        return self._entry(header)

    def _entry(self, header: bytes) -> Entry:
        try:
            fields = json.loads(header)
        except (ValueError, RecursionError) as error:
            raise BadTree("a header that is no JSON") from error
        check(fields)
        self.entries += 1
        self._left = fields["size"]
        self._bytes_left -= self._left
        if self.entries > self._max_entries or self._bytes_left < 0:
            raise BadTree("the tree is larger than allowed")
        return Entry(**fields)


def check(fields: Any) -> None:
    """Raises BadTree unless these are the fields of a proper entry."""
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
        raise BadTree("a header with other members than an entry has")
    check_path(fields["path"])
    kind, size, target = fields["type"], fields["size"], fields["target"]
    if kind not in (FILE, DIRECTORY, SYMLINK):
        raise BadTree("an entry of an unknown type")
    if not _is_whole(fields["mode"], 0o777):
        raise BadTree("a mode that is more than permission bits")
    if type(fields["mtime"]) not in (int, float) or not -_MAX_TIME < fields["mtime"] < _MAX_TIME:
        raise BadTree("a time that no file has")
    if not _is_whole(size, _MAX_SIZE if kind == FILE else 0):
        raise BadTree("a size that the entry cannot have")
    if kind != SYMLINK:
        if target is not None:
            raise BadTree("a target on something that is no link")
    elif type(target) is not str or not 0 < len(_encoded(target)) < MAX_PATH or "\0" in target:
        raise BadTree("a link without a proper target")


def check_path(path: Any) -> None:
    """Raises BadTree unless it is relative and only goes down."""
    if type(path) is not str or not 0 < len(_encoded(path)) < MAX_PATH or "\0" in path:
        raise BadTree("a path that is empty, too long or no text")
    for name in path.split("/"):
        if name in ("", ".", "..") or len(_encoded(name)) > MAX_NAME:
            raise BadTree("a path that does not simply go down: %.100r" % path)


def _is_whole(value: object, largest: int) -> bool:
    return type(value) is int and 0 <= value <= largest


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadTree("a surrogate that stands for no byte") from error
