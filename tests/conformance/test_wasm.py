"""The wasm driver keeps the contract, as far as it declares to."""

from __future__ import annotations

import pytest

from atoll.testing import DriverConformance

# The first one on a machine compiles Python, which takes minutes where all processors are busy.
pytestmark = pytest.mark.timeout(900)


class TestWasm(DriverConformance):
    driver = "wasm"
