"""Starts a guest by exec, for walls that have no zygote.

`python -I -S …/atoll/guest/__main__.py LINE --config JSON` needs only the directories `atoll/guest` and `atoll/wire`.
LINE is how it reaches its keeper: `--control-fd N` is a Unix socket that it inherits, `--control-path PATH` one that it
connects to, and `--stream-fds R,W` a stream of bytes with a switchboard at its other end. Over it the guest says
`{"serving": true}` when it is ready for clients. `--descend USER,GROUP,PROCESSES,RENAMED,ALONE` is for one that starts
as root of a kernel of its own; see `descending`.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

if TYPE_CHECKING:
    from .server import Server

_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
# Who wants code at once gets a kernel at once; for all others one is started ahead, which takes a while.
_THINKING = 0.5
_LINES = ("--control-fd", "--control-path", "--stream-fds")
_USAGE = (
    "usage: __main__.py (--control-fd N | --control-path PATH | --stream-fds R,W) --config JSON [--descend U,G,N,R,A]"
)


def main(argv: List[str]) -> None:
    """Raises SystemExit for a command line that it does not understand."""
    options = dict(zip(argv[::2], argv[1::2]))
    lines = [name for name in _LINES if name in options]
    if len(lines) != 1 or set(options) - {"--descend"} != {lines[0], "--config"}:
        raise SystemExit(_USAGE)
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, package)
    from atoll.guest import borrowed
    from atoll.guest.config import Config
    from atoll.guest.descending import Descent, descend
    from atoll.guest.server import Server

    sys.path.remove(package)
    config = Config.parse(options["--config"])
    if config.cloudpickle:
        borrowed.lend(config.cloudpickle)
    if "--descend" in options:
        descend(Descent.parse(options["--descend"]))

    def serve(control: socket.socket) -> Server:
        os.set_inheritable(control.fileno(), False)
        score = _opened("/proc/self/oom_score_adj", os.O_RDWR)
        kills = _opened(config.kills)
        if config.closed:
            _control_process(_SET_DUMPABLE, 0)
        server = Server(control, config, score, kills)
        control.send(b'{"serving":true}')
        if config.kernel:
            # Bridges to kernels are forks of a nest, whose children they do not stay.
            _control_process(_SET_CHILD_SUBREAPER, 1)
            server.loop.after(_THINKING, server.prefork_context)
        return server

    starts: Dict[str, Callable[[str, Callable[[socket.socket], Server]], Server]] = {
        "--control-fd": _inherited,
        "--control-path": _connected,
        "--stream-fds": _streamed,
    }
    starts[lines[0]](options[lines[0]], serve).run()


def _opened(path: str, flags: int = os.O_RDONLY) -> Optional[int]:
    """None for what is not there, or closed to us: then the kernel kills whom it likes, and tells nobody."""
    try:
        return os.open(path, flags | os.O_CLOEXEC) if path else None
    except OSError:
        return None


def _control_process(option: int, value: int) -> None:
    """Raises OSError."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _inherited(value: str, serve: Callable[[socket.socket], Server]) -> Server:
    if not value.isdigit():
        raise SystemExit(_USAGE)
    return serve(socket.socket(fileno=int(value)))


def _connected(value: str, serve: Callable[[socket.socket], Server]) -> Server:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(value)
    return serve(control)


def _streamed(value: str, serve: Callable[[socket.socket], Server]) -> Server:
    from atoll.guest.switchboard import Switchboard

    numbers = value.split(",")
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        raise SystemExit(_USAGE)
    # Copies, and nothing in their places: what a guest starts must not find its line to the keeper.
    reader, writer = (os.dup(int(number)) for number in numbers)
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(null, int(number))
    os.close(null)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = serve(theirs)
    Switchboard(server.loop, reader, writer, ours, lambda: None, may_open=True)
    return server


if __name__ == "__main__":
    main(sys.argv[1:])
