"""Whether a wall can really be built here: a sandbox is made, used and ended, in a state directory of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

from ..errors import AtollError
from ..home import state_dir
from ..types import Layer, Resources

# Walls that take a second. Others build a root file system or compile first.
QUICK = ("jail", "bwrap")
NAME = "a real sandbox"
_PATIENCE = 30.0
_ASK = "import socket, sys; socket.create_connection((sys.argv[1], 53), 3).close()"


def try_out(name: str, *, network: bool) -> Iterator[Layer]:
    """What came of it, step by step. With `network`, one with `network="all"` too.

    For a process that does nothing else meanwhile: the state directory is the process's.
    """
    before = os.environ.get("ATOLL_HOME")
    try:
        place = tempfile.mkdtemp(prefix="doctor-", dir=state_dir())
    except (AtollError, OSError) as error:
        yield Layer(NAME, ready=False, detail=str(error))
        return
    os.environ["ATOLL_HOME"] = place
    try:
        yield _made(name)
        if network:
            yield _connected(name)
    finally:
        os.environ.pop("ATOLL_HOME")
        if before is not None:
            os.environ["ATOLL_HOME"] = before
        _clear(place)


def _made(name: str) -> Layer:
    from ..sync import Sandbox

    try:
        with Sandbox.create(name, timeout=_PATIENCE) as sandbox:
            info = sandbox.info
            sandbox.run("true")
    except AtollError as error:
        return Layer(NAME, ready=False, detail=error.message, fix=error.hint)
    # What is polled on every host says nothing about this one.
    polled = sorted(limit for limit in Resources._fields if info.limits.get(limit) == "polled")
    held = f"; polled limits: {', '.join(polled)}" if polled else ""
    return Layer(NAME, ready=True, detail=f"made, used and ended{held}")


def _connected(name: str) -> Layer:
    from ..sync import Sandbox

    servers = _name_servers()
    try:
        with Sandbox.create(name, network="all", timeout=_PATIENCE) as sandbox:
            if not servers or not _answers(servers[0]):
                return Layer("network=all", ready=True, detail="made; nobody was found to ask", required=False)
            if sandbox.run(["python3", "-c", _ASK, servers[0]], check=False).success:
                return Layer("network=all", ready=True, detail=f"{servers[0]} was reached", required=False)
    except AtollError as error:
        return Layer("network=all", ready=False, detail=error.message, fix=error.hint, required=False)
    detail = f"it is made, and no packet passes: this host reaches {servers[0]}, a sandbox does not"
    fix = "Let this host's firewall forward what comes from the interfaces at*."
    return Layer("network=all", ready=False, detail=detail, fix=fix, required=False)


def _name_servers() -> list[str]:
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    return [
        each[1] for each in words if each[:1] == ["nameserver"] and len(each) > 1 and not each[1].startswith("127.")
    ]


def _answers(server: str) -> bool:
    import socket

    try:
        socket.create_connection((server, 53), 1).close()
    except OSError:
        return False
    return True


def _clear(place: str) -> None:
    import contextlib

    from ..engine.launch import shut_down
    from ..engine.removal import remove_tree

    shut_down(place)
    with contextlib.suppress(OSError):
        remove_tree(place)
