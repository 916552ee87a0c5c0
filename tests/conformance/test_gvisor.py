"""gVisor keeps the contract, as far as it declares to."""

from __future__ import annotations

from atoll.testing import DriverConformance


class TestGVisor(DriverConformance):
    driver = "gvisor"
