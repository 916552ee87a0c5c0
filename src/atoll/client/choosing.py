"""Which wall to take when several would do: an order of names, of which the first takes it that can."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from .. import registry
from ..driver import Driver
from ..errors import DriverMissing, InvalidInput, Unsupported, WallUnavailable
from ..io import IO
from ..policy.text import kind_of

STRONGEST = "strongest"
ORDER = ("gvisor", "jail", "bwrap", "docker")
"""The strongest first: a kernel of its own before the host's, and of those with the host's who leaves least of it."""

# A machine does not change every second, and looking at some walls starts a program.
_FRESH = 30.0
_looked: dict[str, tuple[float, str | None]] = {}

T = TypeVar("T")


def names_in(driver: str | None) -> list[str]:
    """The walls that a `driver=` names, in the order in which they are to be tried.

    "strongest" is `$ATOLL_STRONGEST`, a list such as "wasm,gvisor,jail", or else `ORDER`.

    Raises:
        InvalidInput: it is no name and no list of names.
        UnknownDriver: there is no driver of one of the names.
    """
    given = _given(driver)
    if not isinstance(given, str):
        raise InvalidInput(f"driver is {kind_of(given)}; give a name such as {registry.DEFAULT!r}.")
    if given == STRONGEST:
        own = os.environ.get("ATOLL_STRONGEST")
        given = own or ",".join(name for name in ORDER if name in registry.BUILT_IN)
    names = [name.strip() for name in given.split(",")]
    if len(names) > 1:
        for name in names:
            registry.check_known(name)
    return names


def _given(driver: str | None) -> str:
    return registry.default_name() if driver is None else driver


async def choose(io: IO, driver: str | None, make: Callable[[Driver, Mapping[str, str]], Awaitable[T]]) -> T:
    """What `make` gives with the first of the walls that is ready and does not refuse.

    It is told which were passed over before, and why.

    Where one wall is named, it is that or its error.

    Raises:
        WallUnavailable: none of several would do; the message says of each why.
    """
    names = names_in(driver)

    def loaded(name: str) -> Driver:
        wall = registry.load(name, io)
        wall.careful = _given(driver) == STRONGEST
        return wall

    if len(names) == 1:
        return await make(loaded(names[0]), {})
    reasons: dict[str, str] = {}
    for name in names:
        try:
            wall = loaded(name)
            missing = await why_not_ready(wall)
            if missing is None:
                return await make(wall, dict(reasons))
        except (DriverMissing, Unsupported, WallUnavailable) as error:
            missing = error.message
        reasons[name] = missing.rstrip(".")
    said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise WallUnavailable(
        f"None of the walls {', '.join(names)} can be used. {said}.",
        hint="Run `atoll providers` to see what each needs.",
    )


async def why_not_ready(wall: Driver) -> str | None:
    """What a wall lacks on this host, or None when it is ready. Starts nothing; what was seen lately counts."""
    now = time.monotonic()
    seen, reason = _looked.get(wall.name, (-_FRESH, None))
    if now - seen < _FRESH:
        return reason
    lacking = [layer for layer in await wall.health() if layer.required and not layer.ready]
    reason = f"{lacking[0].name}: {lacking[0].detail}" if lacking else None
    _looked[wall.name] = now, reason
    return reason
