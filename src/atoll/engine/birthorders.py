"""Orders of the zygote to its stem, to fork a keeper: what must be known of a job before its first process is made."""

from __future__ import annotations

from typing import NamedTuple

from .settings import ID_LENGTH

PARK_CLOSED, PARK_OPEN, MAKE = b"c", b"o", b"m"
PARK_NURSED, MAKE_NURSED = b"n", b"N"
_YES, _NO = b"y", b"n"
SIZE = 3 + ID_LENGTH


class Order(NamedTuple):
    """`resumes` tells that the sandbox is there already, stopped; without `own_network` it has the host's."""

    kind: bytes
    sandbox: str
    resumes: bool = False
    own_network: bool = True

    @property
    def closed(self) -> bool:
        return self.kind in (PARK_CLOSED, PARK_NURSED)

    @property
    def nursed(self) -> bool:
        return self.kind in (PARK_NURSED, MAKE_NURSED)

    def encode(self) -> bytes:
        flags = (self.resumes, self.own_network)
        return self.kind + b"".join(_YES if flag else _NO for flag in flags) + self.sandbox.encode()


def decode(data: bytes) -> Order:
    """What `encode` made."""
    return Order(data[:1], data[3:].decode(), data[1:2] == _YES, data[2:3] == _YES)
