"""Which limits of a sandbox are held by looking, and who looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .headroom import Headroom
from .layout import Layout
from .sockets import SocketWatch
from .watch import Watch
from .watchdog import Watchdog


def needed(
    born: dict[str, Any], places: Layout, sandbox: str, processes: Callable[[], list[int]]
) -> tuple[list[Watch], list[Watch]]:
    """Those that look at what its own processes do, and those that look even while it is paused.

    Args:
        born: what its birth has told.
        processes: gives all that are in it.
    """
    own = [Watchdog.needed(born, places.box(sandbox)), SocketWatch.needed(born, processes)]
    others = [Headroom.needed(born, places, sandbox)]
    return [each for each in own if each], [each for each in others if each]
