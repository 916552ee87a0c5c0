"""Which capabilities a test is about. `DriverConformance` picks the tests of a driver by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..types import Capability

F = TypeVar("F", bound=Callable[..., Any])
Capabilities = frozenset[Capability]

_NEEDED, _LACKING = "atoll_needed", "atoll_lacking"


def needs(*capabilities: Capability) -> Callable[[F], F]:
    """A test of these capabilities: it runs on the drivers that declare all of them."""
    return _noting(_NEEDED, capabilities)


def lacking(*capabilities: Capability) -> Callable[[F], F]:
    """A test of what happens without: it runs on the drivers that declare none of them."""
    return _noting(_LACKING, capabilities)


def _noting(attribute: str, capabilities: tuple[Capability, ...]) -> Callable[[F], F]:
    def note(function: F) -> F:
        setattr(function, attribute, frozenset(capabilities))
        return function

    return note


def needed(test: Callable[..., Any]) -> Capabilities:
    return getattr(test, _NEEDED, frozenset())


def lacked(test: Callable[..., Any]) -> Capabilities:
    return getattr(test, _LACKING, frozenset())


def concerns(test: Callable[..., Any], declared: Capabilities) -> bool:
    """Whether a driver that declares these has to pass this test."""
    return needed(test) <= declared and not lacked(test) & declared
