"""The guest behind bubblewrap keeps the contract."""

from __future__ import annotations

from atoll.testing import DriverConformance


class TestBwrap(DriverConformance):
    driver = "bwrap"
