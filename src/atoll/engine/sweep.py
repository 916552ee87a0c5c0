"""Cleaning up after keepers that were killed: their boxes, control groups and sockets.

A box directory is made after its keeper's socket and removed last but for it, so a box whose socket nobody
answers belongs to nobody, unless `stop` or `checkpoint` has left word how long to keep it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from . import cgroups, messages
from .layers import Layers
from .layout import Layout, network_mark
from .removal import remove_tree
from .settings import ID_PREFIX, Settings, started_at

# How every keeper is called; no other pid is ever killed. The second is one of an older atoll.
_COMMANDS = (b"atoll: keeper ", b"exec(open(0).read())")


def is_alive(places: Layout, sandbox: str) -> bool:
    """Whether a keeper answers for this sandbox, or may: only a certain end is one."""
    try:
        messages.connect(places.socket(sandbox)).close()
    except messages.NOBODY:
        return False
    except OSError:
        return True
    return True


def end_keeper(pid: object, started: object) -> None:
    """End a keeper that nobody can reach any more, because its socket was removed. All behind its wall die with it."""
    if not isinstance(pid, int) or not isinstance(started, int):
        return
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            told = file.read()
        ours = told.startswith(_COMMANDS[0]) or _COMMANDS[1] in told
        if ours and started_at(pid) == started:
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


def kept_until(places: Layout, sandbox: str) -> float:
    """Until when a stopped sandbox's files are to be kept; 0 when it is not a stopped one."""
    try:
        with open(f"{places.box(sandbox)}/stopped", encoding="ascii") as file:
            return float(file.read())
    except (OSError, ValueError):
        return 0.0


def keep_until(places: Layout, sandbox: str, moment: float) -> None:
    """Have a sandbox's files kept until then, whatever becomes of its keeper and of this machine."""
    path = f"{places.box(sandbox)}/stopped"
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(str(moment))
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def remove(places: Layout, hierarchy: cgroups.Hierarchy | None, sandbox: str) -> None:
    """Remove everything of a sandbox whose keeper is gone."""
    if hierarchy:
        group = cgroups.Group(hierarchy, sandbox)
        # Its first process dies with the keeper, unless hostile code has taken it over.
        group.kill()
        group.remove()
    forget(sandbox, places.box(sandbox))
    # Where the whole state directory is gone, there is nothing left to remove.
    with contextlib.suppress(FileNotFoundError):
        remove_tree(places.box(sandbox))
        os.unlink(places.socket(sandbox))


def forget(sandbox: str, box: str) -> None:
    """Take down the network that was set up on the host for a sandbox."""
    # Few have one, and to import what removes it takes longer than all else that a sandbox's end does.
    if os.path.exists(network_mark(box)):
        from . import network

        network.forget(sandbox, box)


def sweep(settings: Settings) -> None:
    """Remove every sandbox that nobody keeps, and every layer that nobody needs."""
    places = settings.layout
    # A keeper killed before it had a box leaves its socket.
    sockets = [name for name in os.listdir(places.run) if name.startswith(ID_PREFIX)]
    for name in sorted({*os.listdir(places.boxes), *sockets}):
        sandbox = name.split(".removing.")[0]
        if is_alive(places, sandbox) or kept_until(places, sandbox) > time.time():
            continue
        try:
            remove(places, settings.hierarchy, sandbox)
            if name != sandbox:
                remove_tree(places.box(name))
        except OSError as error:
            # The next sweep tries again; the others must not wait for it.
            sys.stderr.write(f"What is left of {name} cannot be removed: {error}.\n")
    try:
        Layers(places).collect()
    except OSError as error:
        sys.stderr.write(f"A layer that nobody needs cannot be removed: {error}.\n")
