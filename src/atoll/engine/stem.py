"""The stem: the process that every keeper is forked from, and that does nothing else.

A forked process shares its parent's memory until either writes to it. The zygote, which talks to clients,
writes to a lot; its stem only receives and forks, so nearly all of a keeper's memory stays shared.
Keepers are born as its siblings: the zygote is their parent.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import NoReturn

from . import keeper, kernel, messages
from .settings import ID_LENGTH, Settings

PARK_CLOSED, PARK_OPEN, MAKE = b"c", b"o", b"m"
PARK_NURSED, MAKE_NURSED = b"n", b"N"
_JOB = 1 + ID_LENGTH


def plant(settings: Settings) -> socket.socket:
    """Fork the stem; the result is the channel on which it is told to fork."""
    ours, theirs = messages.pair()
    if os.fork() == 0:
        ours.close()
        _grow(settings, theirs)
    theirs.close()
    return ours


def ask(stem: socket.socket, kind: bytes, sandbox: str, job: bytes, *fds: int) -> None:
    """Have a keeper forked. `fds` is its channel to the zygote; or its maker, and what it closes when it is done.

    Raises:
        OSError: the stem is gone.
    """
    socket.send_fds(stem, [kind + sandbox.encode() + job], fds)


def _grow(settings: Settings, zygote: socket.socket) -> NoReturn:
    kernel.name_process("atoll-stem")
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.close_from(3, (zygote.fileno(), *settings.held))
    receive = zygote.recvmsg
    space = socket.CMSG_SPACE(8)
    size = messages.MAX_MESSAGE + _JOB
    while True:
        data, ancillary, _, _ = receive(size, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        raw = ancillary[0][2]
        fds = [int.from_bytes(raw[i : i + 4], sys.byteorder) for i in range(0, len(raw), 4)]
        if kernel.clone(kernel.CLONE_PARENT) == 0:
            zygote.close()
            kernel.name_process("atoll-keeper")
            closed = data[:1] in (PARK_CLOSED, PARK_NURSED)
            nursed = data[:1] in (PARK_NURSED, MAKE_NURSED)
            keeper.live(settings, data[1:_JOB].decode(), data[_JOB:], fds, closed=closed, nursed=nursed)
        for fd in fds:
            os.close(fd)
