"""The first process behind a wall that some program has built: it closes what that left open, then is the guest.

`python -I -S …/atoll/engine/steward/entry.py CONTROL BRIEF` with two descriptors: the socket of its orders, and a file
with its settings as JSON. Not as arguments: those can be read by anybody on the host.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys


def main(control: int, brief: int) -> None:
    """Never returns before the sandbox ends. What went wrong is said on the control socket."""
    # Nothing of what is imported is garbage; looking for it would take a tenth of the time.
    gc.disable()
    package = os.path.abspath(__file__).rsplit("/", 4)[0]
    sys.path.insert(0, package)
    from atoll.engine import jail, kernel, landlock, messages
    from atoll.guest import borrowed, fresh
    from atoll.guest.config import Config
    from atoll.guest.server import Server

    sys.path.remove(package)
    line = socket.socket(fileno=control)
    try:
        with open(brief, "rb") as file:
            settings = json.load(file)
        kills = settings["kills"]
        _silence(kernel.close_from, [fd for fd in (control, kills) if fd >= 0])
        if settings["config"]["cloudpickle"]:
            borrowed.lend(settings["config"]["cloudpickle"])
        fresh.find_own_modules()
        jail.set_rlimits(settings["rlimits"])
        score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        if settings["landlock"]:
            landlock.restrict(settings["landlock"], landlock.EVERYWHERE)
        server = Server(line, Config(**settings["config"]), score, kills if kills >= 0 else None)
        gc.enable()
        messages.send(line, {"closed": True})
    except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
        messages.send(line, {"failed": f"The wall could not be closed: {error}."})
        os._exit(1)
    try:
        server.prefork_context()
        server.run()
    finally:
        os._exit(0)


def _silence(close_from: object, kept: list[int]) -> None:
    """Nothing is open but what is needed; not even by those that this process will start."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    assert callable(close_from)  # noqa: S101  # imported late
    close_from(3, tuple(kept))
    for fd in kept:
        os.set_inheritable(fd, False)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
