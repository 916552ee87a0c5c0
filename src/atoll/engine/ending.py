"""The end of a sandbox, by its keeper: its processes, and what there is of it on the host."""

from __future__ import annotations

import contextlib
import os
import signal

from . import cgroups, inspection, sweep
from .settings import Settings

# Children made by clone without a signal, too.
_WALL = 0x40000000


def end_children() -> None:
    """Kill the first process, and with it all behind the wall, and what else was started for the sandbox."""
    while found := inspection.children(os.getpid()):
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(-1, _WALL)


def undo(settings: Settings, sandbox: str) -> None:
    """After a birth that failed. What was to be resumed stays as it was."""
    if sweep.kept_until(settings.layout, sandbox):
        _release(settings, sandbox)
    else:
        remove(settings, sandbox)


def leave_files(settings: Settings, sandbox: str, until: float) -> None:
    sweep.keep_until(settings.layout, sandbox, until)
    _release(settings, sandbox)


def _release(settings: Settings, sandbox: str) -> None:
    """Remove everything of a sandbox but its files."""
    if settings.hierarchy:
        cgroups.Group(settings.hierarchy, sandbox).remove()
    sweep.forget(sandbox, settings.layout.box(sandbox))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(settings.layout.socket(sandbox))


def remove(settings: Settings, sandbox: str) -> None:
    sweep.remove(settings.layout, settings.hierarchy, sandbox)
