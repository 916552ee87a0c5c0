"""What walls are measured beside: the same work by the program that the wall is made of, in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from .measure import Figure

_ROUNDS = 7

Beside = Callable[[str, dict[str, float]], list[Figure]]


@contextmanager
def peers() -> Iterator[Beside]:
    """Figures of a wall against its peer; engines that had to be started end with the block."""
    with ExitStack():
        yield _beside


def _beside(name: str, seen: dict[str, float]) -> list[Figure]:
    if name == "wasm":
        return [Figure("wasm: create -> first cell, after the first", seen["create -> cell"], "ms", "", None, 15.0)]
    if name == "gvisor":
        from . import gvisor

        peer = gvisor.bare(_ROUNDS)
        return [Figure("gvisor: create -> first command", seen["create -> command"], "ms", "runsc run", peer, 1.3)]
    return []
