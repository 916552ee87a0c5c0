"""What the groups of checks share: the driver, sandboxes of it, and places in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from .. import registry
from ..driver import Driver
from ..errors import DriverError
from ..io import BlockingIO
from ..sync import Sandbox
from ..types import Capability
from .elsewhere import Elsewhere, target
from .record import PROPERTY

# Before the checks are imported, and the suite imports this first: a failed assertion then shows its values.
pytest.register_assert_rewrite("atoll.testing.checks")

LIFETIME = 600.0
"""Seconds after which a sandbox goes that a broken run has left behind."""

Make = Callable[..., Sandbox]


class Checks:
    """The base of every group. See `DriverConformance` for the two attributes that a user sets."""

    driver: ClassVar[str | type[Driver]]
    wishes: ClassVar[Mapping[str, Any]] = {}

    driver_class: ClassVar[type[Driver]]
    _shared: ClassVar[Sandbox | None] = None

    @classmethod
    def teardown_class(cls) -> None:
        if cls._shared is not None:
            cls._shared.destroy()
            cls._shared = None

    @classmethod
    def create(cls, **wishes: Any) -> Sandbox:
        """A sandbox of the driver. Whoever makes one destroys it."""
        return Sandbox.create(cls.driver_class.name, **cls.with_defaults(**wishes))

    @classmethod
    def with_defaults(cls, **wishes: Any) -> dict[str, Any]:
        return {"lifetime": LIFETIME, **_network(cls.driver_class.capabilities), **cls.wishes, **wishes}

    @classmethod
    def elsewhere(cls, body: str, **values: Any) -> Elsewhere:
        """Start code in another process."""
        return Elsewhere(cls.driver_class, body, values)

    @pytest.fixture(autouse=True)
    def _told(self, record_property: Callable[[str, object], None]) -> None:
        """So that what a run has shown can be written down; see `record`."""
        record_property(PROPERTY, self.driver_class.name)

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        """One that all tests of the class share: none of them changes what another looks at, or ends it."""
        cls = type(self)
        if cls._shared is None or cls._shared.refresh().status != "running":
            cls._shared = cls.create()
        return cls._shared

    @pytest.fixture
    def make(self) -> Iterator[Make]:
        """Makes sandboxes, which are destroyed at the end of the test."""
        made: list[Sandbox] = []

        def one(**wishes: Any) -> Sandbox:
            made.append(self.create(**wishes))
            return made[-1]

        yield one
        for sandbox in made:
            sandbox.destroy()

    @pytest.fixture
    def place(self, sandbox: Sandbox) -> str:
        """A fresh directory in the shared sandbox, relative to its workdir."""
        path = "place-" + os.urandom(6).hex()
        sandbox.files.mkdir(path)
        return path

    @pytest.fixture
    def label(self) -> Iterator[dict[str, str]]:
        """A label that no other sandbox carries. What still carries it at the end of the test is destroyed."""
        label = {"conformance": os.urandom(8).hex()}
        yield label
        while (left := Sandbox.find(label)) is not None:
            left.destroy()


def find_driver(driver: str | type[Driver]) -> type[Driver]:
    """The class of a driver; one that is given as a class is known by its name from here on.

    Raises:
        DriverError: there is no such driver, or another one has its name.
    """
    if isinstance(driver, str):
        return type(registry.load(driver, BlockingIO()))
    known = registry.BUILT_IN.setdefault(driver.name, registry.BuiltIn(target(driver)))
    if known.target != target(driver):
        raise DriverError(f"The name {driver.name!r} of {target(driver)} belongs to {known.target} already.")
    return driver


def _network(capabilities: frozenset[Capability]) -> dict[str, str]:
    """What to ask of a wall that has a network and cannot leave it out."""
    if Capability.NETWORK_NONE in capabilities or Capability.ISOLATION not in capabilities:
        return {}
    return {"network": "all" if Capability.NETWORK_ALL in capabilities else "host"}
