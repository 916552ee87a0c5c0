"""Drivers by name. Nothing of a driver is imported before it is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .driver import Driver
from .errors import DriverError, DriverMissing, InvalidInput, UnknownDriver
from .io import IO
from .policy.text import kind_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "atoll.drivers"
DEFAULT = "jail"


class BuiltIn(NamedTuple):
    """Where a driver's class is, and the extra of atoll that brings what it needs."""

    target: str
    extra: str | None = None


BUILT_IN = {
    "jail": BuiltIn("atoll.drivers.jail:JailDriver"),
    "bwrap": BuiltIn("atoll.drivers.bwrap:BwrapDriver", "bwrap"),
    "gvisor": BuiltIn("atoll.drivers.gvisor:GVisorDriver"),
    "fake": BuiltIn("atoll.drivers.fake:FakeDriver"),
    "docker": BuiltIn("atoll.drivers.docker:DockerDriver", "docker"),
    "inprocess": BuiltIn("atoll.drivers.inprocess:InprocessDriver"),
    "jupyter": BuiltIn("atoll.drivers.jupyter:JupyterDriver", "jupyter"),
    "wasm": BuiltIn("atoll.drivers.wasm:WasmDriver", "wasm"),
    "jupyter-server": BuiltIn("atoll.drivers.jupyter_server:JupyterServerDriver", "jupyter-server"),
}


def load(name: str, io: IO) -> Driver:
    """A driver, ready for use.

    Raises:
        UnknownDriver: nothing has that name; the message lists what there is.
        DriverMissing: the driver is known and what it needs is not installed; the hint says how to get it.
        DriverError: an outside package names something that is no driver, or cannot be loaded.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"driver is {kind_of(name)}; give a name such as {DEFAULT!r}.")
    built_in = BUILT_IN.get(name)
    found = _load_built_in(name, built_in) if built_in else _load_entry_point(name)
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise DriverError(f"The driver {name!r} is {found!r}, which is no subclass of atoll.driver.Driver.")
    return found(io)


def check_known(name: str) -> None:
    """Raises UnknownDriver. Nothing of the driver is imported."""
    if name not in BUILT_IN and name not in _entry_points():
        raise _unknown(name)


def names() -> list[str]:
    """Every name that `load` knows, sorted."""
    return sorted({*BUILT_IN, *_entry_points()})


def default_name() -> str:
    """`$ATOLL_DRIVER`, else "jail"."""
    return os.environ.get("ATOLL_DRIVER") or DEFAULT


def _load_built_in(name: str, built_in: BuiltIn) -> object:
    from importlib import import_module

    module, _, attribute = built_in.target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "atoll":
            raise
        extra = f"atoll[{built_in.extra}]" if built_in.extra else missing
        raise DriverMissing(
            f"The driver {name!r} needs the package {missing!r}, which is not installed.",
            hint=f"Run: pip install '{extra}'",
        ) from error


def _load_entry_point(name: str) -> object:
    points = _entry_points()
    if name not in points:
        raise _unknown(name)
    point = points[name]
    try:
        return point.load()
    except ModuleNotFoundError as error:
        raise DriverMissing(
            f"The driver {name!r} ({point.value}) needs the package {error.name!r}, which is not installed.",
            hint=f"Run: pip install '{error.name}'",
        ) from error
    except Exception as error:  # the import code of a stranger may raise anything
        raise DriverError(f"The driver {name!r} ({point.value}) cannot be loaded: {error!r}.") from error


def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _unknown(name: str) -> UnknownDriver:
    from difflib import get_close_matches

    known = names()
    near = get_close_matches(name, known, n=1)
    return UnknownDriver(
        f"There is no driver {name!r}; the known ones are {', '.join(known)}.",
        hint=f"Did you mean {near[0]!r}?" if near else None,
    )
