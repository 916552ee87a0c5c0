"""The stem: the process that every keeper is forked from, and that does nothing else.

A forked process shares its parent's memory until either writes to it. The zygote, which talks to clients,
writes to a lot; its stem only receives and forks, so nearly all of a keeper's memory stays shared.
Keepers are born as its siblings: the zygote is their parent.

It never sees a job. What it ever had in memory, all guests have in theirs, where hostile code can read it: names of
hidden files, rules, the environment of somebody else. So a job comes in a file of memory, and who makes a sandbox
reads it when the first process has been forked.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import NoReturn

from . import birthorders, keeper, kernel, messages
from .settings import Settings


def plant(settings: Settings) -> socket.socket:
    """Fork the stem; the result is the channel on which it is told to fork."""
    ours, theirs = messages.pair()
    if os.fork() == 0:
        ours.close()
        _grow(settings, theirs)
    theirs.close()
    return ours


def ask(stem: socket.socket, order: birthorders.Order, *fds: int) -> None:
    """Have a keeper forked.

    `fds` is its channel to the zygote; or its maker, what it closes when it is done, and the file with its job.

    Raises:
        OSError: the stem is gone.
    """
    socket.send_fds(stem, [order.encode()], fds)


def _grow(settings: Settings, zygote: socket.socket) -> NoReturn:
    kernel.name_process("atoll-stem")
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.close_from(3, (zygote.fileno(), *settings.held))
    receive = zygote.recvmsg
    space = socket.CMSG_SPACE(12)
    while True:
        data, ancillary, _, _ = receive(birthorders.SIZE, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        raw = ancillary[0][2]
        fds = [int.from_bytes(raw[i : i + 4], sys.byteorder) for i in range(0, len(raw), 4)]
        if kernel.clone(kernel.CLONE_PARENT) == 0:
            zygote.close()
            order = birthorders.decode(data)
            kernel.name_process("atoll-keeper", of=order.sandbox)
            keeper.live(settings, order, fds)
        for fd in fds:
            os.close(fd)
