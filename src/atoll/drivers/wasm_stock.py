"""What the warm process has ready: the instance that is copied, and in each guest made ahead, one copy of it."""

from __future__ import annotations

import contextlib
import os

from ..engine.steward import forked
from ..types import Resources
from . import wasm_confine
from .wasm_context import Parked
from .wasm_nursery import Nursery
from .wasm_runtime import Runtime

_OVERHEAD = 48 << 20


class Unprepared(Exception):
    """What was compiled does not run."""

    def __init__(self, message: str, home: str) -> None:
        super().__init__(message)
        self.hint = f"Remove {home}, so that it is compiled again; or: pip install --force-reinstall 'atoll[wasm]'"


_prepared: list[Nursery] = []
_parked: list[Parked] = []


def prepare(text: str) -> None:
    """In the warm process, before the first fork."""
    from . import wasm_wall  # noqa: F401 - what the forks need has to be there

    runtime = Runtime.loads(text)
    try:
        nursery = Nursery(runtime)
        nursery.prepare()
    except BaseException as error:
        raise Unprepared(f"{error}", runtime.home) from error
    _prepared[:] = [nursery]
    with contextlib.suppress(OSError):
        wasm_confine.program(os.uname().machine)  # remembered in all forks
    forked.on_park.append(_park)


def memory_of(limit: int) -> int:
    """What an instance may have of a sandbox's memory; the rest is for what is around it."""
    return max(limit - _OVERHEAD, _OVERHEAD)


def _park() -> tuple[int, ...]:
    """In a guest that nobody has wanted yet. Gives the descriptors that it has to keep."""
    parked = Parked(prepared(), memory_of(Resources().memory))
    _parked[:] = [parked]
    return parked.kept


def unpark(memory: int) -> Parked | None:
    """The context that was made ahead, once; if it may have so much memory."""
    if not _parked or _parked[0].memory != memory:
        return None
    return _parked.pop()


def prepared() -> Nursery:
    """In a fork of it."""
    return _prepared[0]
