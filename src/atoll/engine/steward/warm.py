"""A warm process that stewards are forked from: with everything imported, so that one is there in a millisecond.

It is started on first use and listens on a private socket of the state directory. Each request is a steward's order and
its line to the maker, as descriptors. It keeps nothing of them, its end harms no sandbox, and it ends itself when
nobody has wanted anything for long, or when its state directory is gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from ...guest import borrowed, fresh, server
from .. import cgroups, kernel, messages
from . import bounds, forked, steward

IDLE_SECONDS = 300.0
_LOOK = 10.0
_PATIENCE = 5.0
# Where guests can be made ahead, so many are; not while requests still come in, which that would slow down.
_SPARES = 2
_QUIET = 0.02
WANTED = (server, bounds, forked)
"""What its forks use, and find imported."""


def daemon(path: str, cloudpickle: str, warmth: tuple[str, str], ready: int) -> NoReturn:
    """Leave the family of who started this, say so, and serve.

    `warmth` is what else is to be done first, see `StewardDriver.warmth`.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    kernel.close_from(3, (ready,))
    kernel.find_arguments()
    kernel.name_process("atoll-stewards")
    try:
        # It outlives who started it, and so do all sandboxes whose stewards are forked here.
        cgroups.leave_callers(cgroups.find())
        if cloudpickle:
            borrowed.lend(cloudpickle)
        if warmth[0]:
            _named(warmth[0])(warmth[1])
        fresh.find_own_modules()
        listener = messages.listen(path)
    except BaseException as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
        os.write(ready, json.dumps([str(error) or repr(error), getattr(error, "hint", None)]).encode())
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    os.write(ready, b"ok")
    os.close(ready)
    try:
        _serve(listener, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os._exit(0)


def _named(target: str) -> Callable[[str], None]:
    module, _, name = target.partition(":")
    found: Callable[[str], None] = getattr(import_module(module), name)
    return found


def _serve(listener: socket.socket, path: str) -> None:
    last = time.monotonic()
    own = os.stat(path).st_ino
    spares: list[socket.socket] = []
    want = _SPARES if forked.on_park else 0
    while True:
        if select.select([listener], [], [], _QUIET if len(spares) < want else _LOOK)[0]:
            last = time.monotonic()
            with contextlib.suppress(OSError):
                _fork(listener, spares)
        elif len(spares) < want:
            with contextlib.suppress(OSError):
                spares.append(_spare())
        elif time.monotonic() - last > IDLE_SECONDS or not _is(path, own):
            return


def _is(path: str, inode: int) -> bool:
    try:
        return os.stat(path).st_ino == inode
    except OSError:
        return False


def _spare() -> socket.socket:
    """A steward that nobody has wanted yet, with its guest. It ends with this process."""
    ours, theirs = messages.pair()
    if os.fork() == 0:
        _wait(theirs)
    theirs.close()
    return ours


def _wait(line: socket.socket) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.close_from(3, (line.fileno(),))
        kept = forked.park()
        _, fds = messages.receive(line)
        _become(fds[0], fds[1], kept)
    finally:
        os._exit(1)


def _fork(listener: socket.socket, spares: list[socket.socket]) -> None:
    client, _ = listener.accept()
    fds: list[int] = []
    with client:
        client.settimeout(_PATIENCE)
        try:
            request, fds = messages.receive(client)
            _import(str(request.get("wall")))
            if len(fds) == 2 and not _give(spares, fds) and os.fork() == 0:
                _become(fds[0], fds[1])
        except (messages.Ended, ValueError):
            pass  # it thought better of it
        finally:
            messages.close(fds)


def _give(spares: list[socket.socket], fds: list[int]) -> bool:
    """Have a spare one take the order; False where there is none that does."""
    while spares:
        with spares.pop() as spare, contextlib.suppress(OSError):
            messages.send(spare, {}, *fds)
            return True
    return False


def _import(wall: str) -> None:
    """What a wall needs is imported once, for all of its stewards. One of somebody else is loaded in its own only."""
    if wall.startswith("atoll."):
        with contextlib.suppress(Exception):  # the steward tries again, and tells
            steward.load(wall)


def _become(order: int, maker: int, kept: tuple[int, ...] = ()) -> NoReturn:
    """In the fork. It never returns into the loop, whose state is a copy."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.close_from(3, (order, maker, *kept))
        with open(order, "rb", closefd=False) as source:
            job = json.load(source)
        os.close(order)
        steward.keep(job, socket.socket(fileno=maker))
    finally:
        os._exit(1)
