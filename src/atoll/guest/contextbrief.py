"""What a context is told that was made outside: the same that one knows which its guest has forked."""

from __future__ import annotations

import json
import socket
import sys
from typing import Dict, NamedTuple, Tuple

from ..wire.frames import OPEN
from . import packets
from .config import Config

_PATIENCE = 10.0
_SPACE = socket.CMSG_SPACE(4)


class Brief(NamedTuple):
    config: Config
    env: Dict[str, str]
    frozen: str


def send(sock: socket.socket, brief: Brief, directory: int) -> None:
    """Tell it; `directory` is where it starts. It listens, so this takes no longer than it does.

    Raises:
        OSError: it does not, or is dead.
    """
    payload = json.dumps([brief.config._asdict(), brief.env, brief.frozen]).encode("ascii")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, directory.to_bytes(4, sys.byteorder))]
    sock.settimeout(_PATIENCE)
    for packet in packets.split(OPEN, payload):
        sock.sendmsg([packet], rights)
        rights = []


def receive(sock: socket.socket) -> Tuple[Brief, int]:
    """Raises: OSError: there is nobody who tells."""
    assembler = packets.Assembler()
    directory = -1
    while True:
        packet, ancillary, _, _ = sock.recvmsg(2 * packets.PACKET, _SPACE, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            raise ConnectionError("the guest is gone")
        if ancillary:
            directory = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        frame = assembler.add(packet, (OPEN,))
        if frame is not None:
            config, env, frozen = json.loads(frame.payload)
            return Brief(Config(**config), env, frozen), directory
