"""Where the kernel that runs here keeps the members of its structures, as it says itself (BTF)."""

from __future__ import annotations

import struct

PATH = "/sys/kernel/btf/vmlinux"

_STRUCT, _UNION, _TYPEDEF = 4, 5, 8
_QUALIFIERS = (8, 9, 10, 11, 18)  # typedef, volatile, const, restrict, type tag
# How many bytes follow the head of a type: of some kinds always as many, of others for each of its members.
_ALWAYS = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
_HEAD, _HEADER = struct.Struct("<III"), struct.Struct("<HBBIIIII")
_MAGIC = 0xEB9F


class Types:
    """Reading them takes a tenth of a second.

    Raises:
        OSError: the kernel does not tell.
        ValueError: it tells in words that are not understood here.
    """

    def __init__(self, path: str = PATH) -> None:
        with open(path, "rb") as file:
            self._raw = file.read()
        magic, _, _, length, types, size, strings, more = _HEADER.unpack_from(self._raw)
        if magic != _MAGIC:
            raise ValueError(f"{path} has no types of a kernel of this machine")
        self._strings = self._raw[length + strings : length + strings + more]
        self._places = [0]
        place, end = length + types, length + types + size
        while place < end:
            self._places.append(place)
            info = int.from_bytes(self._raw[place + 4 : place + 8], "little")
            kind = info >> 24 & 31
            place += 12 + (_EACH[kind] * (info & 0xFFFF) if kind in _EACH else _ALWAYS.get(kind, 0))

    def offset(self, structure: str, member: str) -> int:
        """Bytes from the beginning of a structure to a member, which may lie in nameless ones. Raises ValueError."""
        name = self._strings.find(b"\0" + structure.encode() + b"\0") + 1
        for number in range(1, len(self._places)):
            at, info, _ = _HEAD.unpack_from(self._raw, self._places[number])
            if at == name and info >> 24 & 31 == _STRUCT and name:
                bits = self._find(number, member)
                if bits is not None:
                    return bits // 8
        raise ValueError(f"the kernel's {structure} has no {member}")

    def _find(self, number: int, member: str) -> int | None:
        """The offset in bits, or None."""
        place = self._places[number]
        _, info, _ = _HEAD.unpack_from(self._raw, place)
        kind = info >> 24 & 31
        if kind in _QUALIFIERS:
            return self._find(_HEAD.unpack_from(self._raw, place)[2], member)
        if kind not in (_STRUCT, _UNION):
            return None
        for index in range(info & 0xFFFF):
            name, type_, where = _HEAD.unpack_from(self._raw, place + 12 + 12 * index)
            bits = int(where) & (0xFFFFFF if info >> 31 else 0xFFFFFFFF)
            if name and self._named(name, member):
                return bits
            inner = None if name else self._find(type_, member)
            if inner is not None:
                return bits + inner
        return None

    def _named(self, name: int, text: str) -> bool:
        end = name + len(text)
        return self._strings[name : end + 1] == text.encode() + b"\0"
