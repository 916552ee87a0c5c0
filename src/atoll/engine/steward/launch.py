"""Starting a steward from a client: as a program, or as a fork of a process that is warm already."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from ...errors import CreateFailed, WallUnavailable
from .. import messages

_MAKER = _READY = 3
_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def start(job: dict[str, Any], maker: socket.socket) -> None:
    """Start one as a daemon of its own session, with one end of the line to its maker. Blocks for a moment.

    Raises:
        CreateFailed: it could not be started.
    """
    program = f"from atoll.engine.steward.steward import main; main({_MAKER})"
    source = _as_file(json.dumps(job).encode())
    try:
        status = _run(program, source, maker.fileno())
    except OSError as error:
        raise CreateFailed(f"The steward of the sandbox did not start: {error.strerror}.") from error
    finally:
        os.close(source)
    if status:
        raise CreateFailed(f"The steward of the sandbox did not start; it ended with {status}.")


def start_warm(job: dict[str, Any], maker: socket.socket, home: str, warmth: tuple[str, str] = ("", "")) -> None:
    """The same, forked from the warm process of a state directory, which is started if need be.

    There is one for each `warmth`, see `StewardDriver.warmth`.

    Raises:
        WallUnavailable: that one cannot be started.
        CreateFailed: it ended before it took the order.
    """
    source = _as_file(json.dumps(job).encode())
    try:
        with _warm(home, warmth) as sock:
            messages.send(sock, {"op": "fork", "wall": job["wall"]}, source, maker.fileno())
            sock.settimeout(30)
            sock.recv(1)  # its end: the order is taken
    except OSError as error:
        raise CreateFailed(f"The steward of the sandbox did not start: {error}.") from error
    finally:
        os.close(source)


def _warm(home: str, warmth: tuple[str, str]) -> socket.socket:
    path = f"{home}/run/stewards-{_tag(warmth)}"
    try:
        return messages.connect(path)
    except OSError:
        return _start_once(path, warmth)


def _tag(warmth: tuple[str, str]) -> str:
    """Names the warm process that fits this atoll and this interpreter: after an upgrade a new one is started."""
    import hashlib

    package = os.stat(os.path.join(_PARENT, "atoll"))
    python = f"{sys.executable} {os.stat(sys.executable).st_ino:x} {sys.version} {warmth}"
    digest = hashlib.blake2s(python.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    return f"{messages.VERSION}-{package.st_ino:x}-{digest}"


def _start_once(path: str, warmth: tuple[str, str]) -> socket.socket:
    """Many may want it at the same time: a lock decides who starts it, and all end with the same one."""
    import fcntl

    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return messages.connect(path)
        except FileNotFoundError:
            pass
        except OSError:
            os.unlink(path)
        _start(path, warmth)
        return messages.connect(path)
    finally:
        os.close(lock)


def _start(path: str, warmth: tuple[str, str]) -> None:
    from ..launch import cloudpickle_directory

    reader, writer = os.pipe2(os.O_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    arguments = (path, cloudpickle_directory(), warmth, _READY)
    places = [place for place in sys.path if place] if warmth[0] else []
    try:
        load = "from atoll.engine.steward.warm import daemon; daemon"
        _run(f"sys.path += {places!r}; {load}(*{arguments!r})", null, writer)
    except OSError as error:
        raise WallUnavailable(f"{sys.executable} cannot be started: {error.strerror}.") from error
    finally:
        os.close(writer)
        os.close(null)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    if answer != b"ok":
        reason, hint = json.loads(answer or b'["", null]')
        raise WallUnavailable(
            f"The process that stewards are forked from did not start{': ' if reason else ''}{reason}.",
            hint=hint
            or f"Run `{sys.executable} -I -S -c 'import sys, json, socket'` to see whether this Python works.",
        )


def _run(program: str, source: int, line: int) -> int:
    """Run some code in a Python of its own that leaves this process's family at once; the status that it leaves with.

    What it says goes nowhere: it outlives its maker, who must not wait for the end of a pipe. Raises OSError.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    actions: Sequence[tuple[int, int, int]] = [
        (os.POSIX_SPAWN_DUP2, source, 0),
        (os.POSIX_SPAWN_DUP2, null, 1),
        (os.POSIX_SPAWN_DUP2, null, 2),
        (os.POSIX_SPAWN_DUP2, line, _MAKER),
    ]
    argv = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({_PARENT!r}); {program}"]
    try:
        env = {"PATH": os.environ.get("PATH", os.defpath)}
        pid = os.posix_spawn(sys.executable, argv, env, file_actions=actions)
        return os.waitpid(pid, 0)[1]
    finally:
        os.close(null)


def _as_file(data: bytes) -> int:
    """In memory and not in a pipe: a job may be longer than a pipe holds."""
    fd = os.memfd_create("job", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
