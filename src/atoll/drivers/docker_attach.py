"""The line to a guest by its standard input and output, for runtimes that let no socket of the host in."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import NoReturn
from urllib.parse import quote

from ..engine import kernel
from ..engine.steward.lines import switchboard
from ..guest.descriptors import write_all
from .docker_engine import Engine

_HEAD = struct.Struct(">BxxxI")
_STDOUT = 1
_CHUNK = 1 << 16


def attach(engine: Engine, container: str) -> socket.socket:
    """A connection that is a container's standard input and output, to be had before it is started.

    Raises:
        Refused, Unreachable: the engine gives none.
    """
    return engine.hijack(f"/containers/{quote(container)}/attach?stream=1&stdin=1&stdout=1")


def control(line: socket.socket) -> socket.socket:
    """What a steward needs of a guest that is reached through an attached line, which is used up by this."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        _unpack(line, writer)
    os.close(writer)
    return switchboard(reader, line.detach())


def _unpack(line: socket.socket, writer: int) -> NoReturn:
    """Pass on what the guest says. The engine puts a head before each piece that tells output from errors."""
    try:
        kernel.close_from(3, (line.fileno(), writer))
        while head := _exactly(line, _HEAD.size):
            stream, left = _HEAD.unpack(head)
            while left:
                piece = _received(line, min(left, _CHUNK))
                if not piece:
                    os._exit(0)
                left -= len(piece)
                if stream == _STDOUT:
                    write_all(writer, piece)
    finally:
        os._exit(0)


def _exactly(line: socket.socket, count: int) -> bytes:
    """So many bytes; none at the end."""
    found = b""
    while len(found) < count:
        piece = _received(line, count - len(found))
        if not piece:
            return b""
        found += piece
    return found


def _received(line: socket.socket, most: int) -> bytes:
    """Whoever writes to the line, in another process, may have it never wait."""
    select.select([line], [], [])
    return line.recv(most)
