"""For tests: the conformance suite, and a model that plays a script.

The suite is what every wall must do, as tests that an outside driver can run too:

    from atoll.testing import DriverConformance

    class TestMyWall(DriverConformance):
        driver = "mywall"

Needs pytest. docs/how-to/write-a-driver.md shows how it is used, docs/reference/conformance.md what it checks.
`atoll.testing.playedmodel` needs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .suite import DriverConformance

__all__ = ["DriverConformance"]


def __getattr__(name: str) -> object:
    # Late, so that who wants the played model only needs no pytest.
    if name != "DriverConformance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .suite import DriverConformance

    return DriverConformance
