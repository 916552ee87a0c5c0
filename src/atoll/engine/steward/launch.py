"""Starting a steward from a client."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from ...errors import CreateFailed

_MAKER = 3


def start(job: dict[str, Any], maker: socket.socket) -> None:
    """Start one as a daemon of its own session, with one end of the line to its maker. Blocks for a moment.

    Raises:
        CreateFailed: it could not be started.
    """
    package_parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    program = (
        f"import sys; sys.path.append({package_parent!r}); "
        f"from atoll.engine.steward.steward import main; main({_MAKER})"
    )
    source = _as_file(json.dumps(job).encode())
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        # What it says goes nowhere: it outlives its maker, who must not wait for the end of a pipe.
        actions = [
            (os.POSIX_SPAWN_DUP2, source, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, null, 2),
            (os.POSIX_SPAWN_DUP2, maker.fileno(), _MAKER),
        ]
        argv = [sys.executable, "-I", "-S", "-c", program]
        pid = os.posix_spawn(sys.executable, argv, {"PATH": os.environ.get("PATH", os.defpath)}, file_actions=actions)
        _, status = os.waitpid(pid, 0)
    except OSError as error:
        raise CreateFailed(f"The steward of the sandbox did not start: {error.strerror}.") from error
    finally:
        os.close(source)
        os.close(null)
    if status:
        raise CreateFailed(f"The steward of the sandbox did not start; it ended with {status}.")


def _as_file(data: bytes) -> int:
    """In memory and not in a pipe: a job may be longer than a pipe holds."""
    fd = os.memfd_create("job", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
