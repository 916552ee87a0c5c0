"""Headers of tar, each in one form only. Pure.

Every member has an extended header (pax), which says all that matters, and an ordinary one, which must agree.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import Damaged

BLOCK = 512
LARGEST_RECORDS = 256 << 10
END = bytes(2 * BLOCK)

_TYPES = {"file": b"0", "link": b"1", "symlink": b"2", "directory": b"5", "fifo": b"6"}
_KINDS = {value: name for name, value in _TYPES.items()}
# What tar has no type for is an empty file to other programs.
_OWN_KINDS = ("whiteout", "socket")
_XATTR = b"SCHILY.xattr."
_TIME = re.compile(rb"(-?)([0-9]{1,12})\.([0-9]{9})")
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,18}")
_LARGEST_OCTAL = 0o77777777777
MODES = 0o1777


class Entry(NamedTuple):
    """One path of a layer.

    Args:
        path: begins with the place.
        mtime: nanoseconds.
        size: of the file, holes included.
        stored: how many bytes follow the header: the file itself, or a map of what is not holes, and that.
        target: of a symbolic link, or the path that a hard link is another name of.
        opaque: hides what the layers below have at this path.
        xattrs: sorted, without the prefix `user.`.
        sparse: has holes.
    """

    path: bytes
    kind: str
    mode: int = 0
    mtime: int = 0
    size: int = 0
    stored: int = 0
    target: bytes = b""
    opaque: bool = False
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    sparse: bool = False


def padding(size: int) -> bytes:
    """What fills the last block of so many bytes."""
    return bytes(-size % BLOCK)


def member(name: str, size: int) -> bytes:
    """The headers of a member of the outer tar. Their length does not depend on the size."""
    path = name.encode()
    records = _record(b"path", path) + _record(b"size", b"%d" % size)
    return _with_records(records, _header(path, b"0", 0o644, size, 0, b""))


def encode(entry: Entry) -> bytes:
    """The headers of a path of a layer."""
    kind = _TYPES.get(entry.kind, b"0")
    link = entry.target[:100] if entry.target else b""
    plain = _header(entry.path[:100], kind, entry.mode, entry.stored, entry.mtime // 10**9, link)
    return _with_records(b"".join(_record(*each) for each in _records(entry)), plain)


def _records(entry: Entry) -> list[tuple[bytes, bytes]]:
    found = {b"path": entry.path, b"mtime": _time(entry.mtime)}
    if entry.target:
        found[b"linkpath"] = entry.target
    if entry.kind in _OWN_KINDS:
        found[b"ATOLL.kind"] = entry.kind.encode()
    if entry.opaque:
        found[b"ATOLL.opaque"] = b"1"
    if entry.kind == "file":
        found[b"size"] = b"%d" % entry.stored
    if entry.sparse:
        found |= {
            b"GNU.sparse.major": b"1",
            b"GNU.sparse.minor": b"0",
            b"GNU.sparse.name": entry.path,
            b"GNU.sparse.realsize": b"%d" % entry.size,
        }
    for name, value in entry.xattrs:
        found[_XATTR + b"user." + name.replace(b"%", b"%25").replace(b"=", b"%3D")] = value
    ordered = sorted(found.items())
    return [(b"hdrcharset", b"BINARY"), *ordered] if _is_binary(entry.path + entry.target) else ordered


def _is_binary(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def _time(nanoseconds: int) -> bytes:
    sign = b"-" if nanoseconds < 0 else b""
    return sign + b"%d.%09d" % divmod(abs(nanoseconds), 10**9)


def _record(key: bytes, value: bytes) -> bytes:
    size = len(key) + len(value) + 3
    total = size + len(str(size))
    total = size + len(str(total))
    return b"%d %s=%s\n" % (total, key, value)


def _with_records(records: bytes, plain: bytes) -> bytes:
    return _header(b"pax", b"x", 0o644, len(records), 0, b"") + records + padding(len(records)) + plain


def _header(name: bytes, kind: bytes, mode: int, size: int, seconds: int, link: bytes) -> bytes:
    # What does not fit is told by the records alone.
    size = size if size <= _LARGEST_OCTAL else 0
    seconds = min(max(seconds, 0), _LARGEST_OCTAL)
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, seconds)
    rest = kind + link.ljust(100, b"\0") + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    raw = (name.ljust(100, b"\0") + numbers + b" " * 8 + rest).ljust(BLOCK, b"\0")
    return raw[:148] + b"%06o\0 " % sum(raw) + raw[156:]


def records_size(block: bytes) -> int:
    """How long the records are that an extended header announces.

    Raises:
        Damaged: it is none.
    """
    size = _octal(block[124:136])
    if size > LARGEST_RECORDS or block != _header(b"pax", b"x", 0o644, size, 0, b""):
        raise Damaged("a header is none that atoll writes")
    return size


def decode_member(records: bytes, raw: bytes) -> tuple[str, int]:
    """Name and size of a member of the outer tar, whose headers are `raw`. Raises Damaged."""
    found = _parse(records)
    if set(found) != {b"path", b"size"} or not found[b"path"].isascii():
        raise Damaged("a header is none that atoll writes")
    name, size = found[b"path"].decode(), _number(found[b"size"])
    if member(name, size) != raw:
        raise Damaged("a header is none that atoll writes")
    return name, size


def decode(records: bytes, raw: bytes) -> Entry:
    """The path of a layer whose headers are `raw`. Raises Damaged."""
    found = _parse(records)
    plain = raw[-BLOCK:]
    kind = found.get(b"ATOLL.kind", b"").decode("ascii", "replace") or _KINDS.get(plain[156:157], "")
    sparse = b"GNU.sparse.realsize" in found
    stored = _number(found.get(b"size", b"0"))
    entry = Entry(
        found.get(b"path", b""),
        kind,
        _octal(plain[100:108]) & MODES,
        _nanoseconds(found.get(b"mtime", b"")),
        _number(found[b"GNU.sparse.realsize"]) if sparse else stored,
        stored,
        found.get(b"linkpath", b""),
        b"ATOLL.opaque" in found,
        tuple(sorted((_xattr_name(key), value) for key, value in found.items() if key.startswith(_XATTR))),
        sparse,
    )
    if encode(entry) != raw or not _makes_sense(entry):
        raise Damaged("a header is none that atoll writes")
    return entry


def _makes_sense(entry: Entry) -> bool:
    """Whether a path of its kind can have what it says it has."""
    return (
        (entry.kind in _TYPES or entry.kind in _OWN_KINDS)
        and (entry.kind == "file" or not (entry.stored or entry.sparse))
        and (bool(entry.target) == (entry.kind in ("symlink", "link")))
        and (entry.kind == "directory" or not entry.opaque)
        and (entry.kind in ("file", "directory") or not entry.xattrs)
        and (entry.kind not in ("whiteout", "link", "symlink") or not entry.mode)
        and (entry.kind not in ("whiteout", "link") or not entry.mtime)
    )


def _xattr_name(key: bytes) -> bytes:
    return key[len(_XATTR) + len(b"user.") :].replace(b"%3D", b"=").replace(b"%25", b"%")


def _parse(records: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    rest = records
    while rest:
        head, space, _ = rest[:8].partition(b" ")
        size = _number(head)
        line, rest = rest[:size], rest[size:]
        key, equals, value = line[len(head) + 1 : -1].partition(b"=")
        if not space or not equals or len(line) != size or line[-1:] != b"\n" or key in found:
            raise Damaged("the records of a header cannot be read")
        found[key] = value
    return found


def _number(text: bytes) -> int:
    if not _NUMBER.fullmatch(text):
        raise Damaged("a header has a number that is none")
    return int(text)


def _octal(field: bytes) -> int:
    if not re.fullmatch(rb"[0-7]+\0", field):
        raise Damaged("a header has a number that is none")
    return int(field[:-1], 8)


def _nanoseconds(text: bytes) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise Damaged("a header has a time that is none")
    value = int(match[2]) * 10**9 + int(match[3])
    return -value if match[1] else value
