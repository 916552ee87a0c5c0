"""Running the guest's code once in the zygote, before anything is forked from it.

The first run of a piece of Python writes to memory: caches of the interpreter settle, types and dictionaries
are given versions. Done here, in memory that all sandboxes share, that is not done again in each of them.
Only atoll's own code runs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from typing import Any

from ..guest.config import Config
from ..guest.server import Server
from ..wire import frames
from . import kernel, messages
from .settings import Settings

_TIMES = 12


def rehearse(settings: Settings) -> None:
    """Go through what keepers and guests do for every sandbox."""
    for _ in range(_TIMES):
        _messages()
        kernel.prctl(_PR_GET_DUMPABLE)
    control, theirs = messages.pair()
    server = Server(theirs, Config(workdir="/", env={"PATH": "/usr/bin:/bin"}, python=settings.python))
    for _ in range(2):
        _session(server, control)
    control.close()
    server.run()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


_PR_GET_DUMPABLE = 3


def _messages() -> None:
    ours, theirs = messages.pair()
    with ours, theirs:
        messages.send(ours, {"op": "status", "facts": [1, 2.0, None, True, "x"]}, ours.fileno())
        _, fds = messages.receive(theirs)
        os.close(fds[0])
        poll = select.poll()
        poll.register(ours.fileno(), select.POLLOUT)
        poll.poll(0)


def _session(server: Server, control: socket.socket) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(control, [b"c"], [theirs.fileno()])
        wishes: list[dict[str, Any]] = [{"op": "code", "code": "1"}, {"op": "exec", "argv": ["true"]}] * 4
        ours.sendall(
            frames.encode_json(0, frames.HELLO, {"version": frames.VERSION})
            + b"".join(frames.encode_json(n, frames.OPEN, wish) for n, wish in enumerate(wishes, 1))
        )
        decoder, left = frames.Decoder(), len(wishes)
        while left:
            server.turn()
            ours.setblocking(False)
            try:
                data = ours.recv(1 << 16)
            except BlockingIOError:
                continue
            left -= sum(frame.kind == frames.END for frame in decoder.feed(data))
