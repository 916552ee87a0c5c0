"""How a wall reaches the guest that it has started."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, NoReturn

from .. import messages


def package_directory() -> str:
    """The directory that holds `atoll`; of which a guest needs `atoll/guest` and `atoll/wire`."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def guest_command(
    python: str, packages: str, line: tuple[str, str], config: Mapping[str, Any], start: str = "__main__.py"
) -> list[str]:
    """How a guest is started by exec. `line` is one of the options of `guest.__main__` and its value.

    In a tree of `roottree`, `start` may be "begin.py", which opens one file instead of two hundred.
    """
    main = f"{packages}/atoll/guest/{start}"
    return [python, "-I", "-S", main, *line, "--config", json.dumps(dict(config))]


def switchboard(reader: int, writer: int) -> socket.socket:
    """Have a process of its own carry many streams over one, whose other end is a guest with `--stream-fds`.

    Gives what `Wall.start` has to give. Both descriptors are closed here. The process ends with the stream or with the
    steward, whichever is first.
    """
    ours, theirs = messages.pair()
    if os.fork() == 0:
        _carry(reader, writer, theirs)
    os.close(reader)
    if writer != reader:
        os.close(writer)
    theirs.close()
    return ours


def _carry(reader: int, writer: int, control: socket.socket) -> NoReturn:
    from ...guest.loop import Loop
    from ...guest.switchboard import Switchboard
    from .. import kernel

    try:
        kernel.close_from(3, (reader, writer, control.fileno()))
        loop = Loop()
        Switchboard(loop, reader, writer, control, loop.stop, may_open=False)
        loop.run()
    finally:
        os._exit(0)
