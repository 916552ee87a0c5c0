"""The jail keeps the contract."""

from __future__ import annotations

from atoll.testing import DriverConformance


class TestJail(DriverConformance):
    driver = "jail"
