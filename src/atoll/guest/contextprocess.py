"""Turning a fork of the guest into a context: a plain Python process as a cell expects to find it."""

from __future__ import annotations

import _frozen_importlib_external as _bootstrap
import _sitebuiltins
import builtins
import gc
import os
import signal
import socket
import sys
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from . import contextbrief
from .awakening import Memory
from .cells import Service
from .config import Config
from .guard import Guard
from .machine import undo_inherited_signals
from .ports import Reception
from .shared import Shared
from .situation import set_environment
from .twinning import own_its_proc

_BROKEN = 70
_PACKAGE = __name__.partition(".")[0]


rehearsal: Optional[Callable[[], None]] = None
"""What a context that is made ahead does while nobody waits: its memory is then its own, and not copied later."""


class Ends(NamedTuple):
    """What a context shares with its guest."""

    wire: socket.socket
    stdin: int
    stdout: int
    stderr: int
    taps: Tuple[int, int]
    shared: Shared


def become_context(
    config: Config, env: Dict[str, str], ends: Ends, frozen: str = "", *, guarded: bool = False
) -> NoReturn:
    """In the fork, in the working directory. Never returns into the guest's code, whose state is a copy.

    `env` is added to the sandbox's own, `frozen` is a file with variables to bring back. If `guarded`, its cells run
    under the rules of `guard`.
    """
    try:
        own_its_proc()
        reset_signals()
        os.setsid()
        _connect(ends)
        set_environment({**config.environment(), **env})
        if rehearsal is not None:
            rehearsal()
        _set_interpreter(config)
        _reseed()
        memory = Memory(config.state_directory(), frozen)
        Service(Reception(ends.wire), ends.shared, ends.taps, memory, Guard() if guarded else None).run()
    except BaseException:  # noqa: BLE001  # it must not unwind into the guest's code
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(_BROKEN)


def be_born(wire: int, taps: Tuple[int, int], page: int) -> NoReturn:
    """In a process that the keeper has made, behind its wall: be told by the guest what to be, and become it."""
    try:
        undo_inherited_signals()
        sock = socket.socket(fileno=wire)
        shared = Shared(page)
        os.close(page)
        brief, directory = contextbrief.receive(sock)
        os.fchdir(directory)
        os.close(directory)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        become_context(brief.config, brief.env, Ends(sock, null, 1, 2, taps, shared), brief.frozen)
    finally:
        os._exit(_BROKEN)


def reset_signals() -> None:
    """In any fork of the guest that runs Python."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, lambda _number, _frame: None)


def _connect(ends: Ends) -> None:
    for fd, copy in ((ends.stdin, 0), (ends.stdout, 1), (ends.stderr, 2)):
        os.dup2(fd, copy)
    close_all_but((0, 1, 2, ends.wire.fileno(), *ends.taps))


def close_all_but(kept: Tuple[int, ...]) -> None:
    """The guest's other descriptors, to clients and to other processes, are nobody else's business."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # it was the descriptor of the listing


def _set_interpreter(config: Config) -> None:
    sys.argv = [""]
    sys.path[:] = ["", *(config.python_path or sys.path)]
    sys.path_importer_cache.clear()
    _expect_packages(config)
    sys.executable = config.python
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for name in ("exit", "quit"):
        setattr(builtins, name, _Quitter(name, "Ctrl-D"))
    builtins.help = _sitebuiltins._Helper()  # noqa: SLF001  # as `site` does, which may not be loaded
    for name in _own_modules or find_own_modules():
        del sys.modules[name]  # a cell that imports it wants the one that its sandbox has, if any
    # What came from the guest is never garbage here; collecting would only copy its pages.
    gc.freeze()
    gc.enable()


def _expect_packages(config: Config) -> None:
    """Directories that an installer makes later: Python would remember for good that they are not there."""
    for path in config.python_path:
        if path.endswith("/site-packages"):
            finder = _bootstrap.FileFinder(path, *_bootstrap._get_supported_file_loaders())  # type: ignore[attr-defined]  # noqa: SLF001
            sys.path_importer_cache[path] = finder


class _Quitter(_sitebuiltins.Quitter):
    """Ends the cell. The usual one closes sys.stdin as well, which the next cell would miss."""

    def __call__(self, code: Any = None) -> NoReturn:
        raise SystemExit(code)


_own_modules: List[str] = []


def find_own_modules() -> List[str]:
    """The guest's own modules. Found out once, before anything is forked, that is not done again in each fork."""
    _own_modules[:] = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return _own_modules


def _reseed() -> None:
    """All forks of one guest would draw the same numbers. `random` reseeds itself on fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
