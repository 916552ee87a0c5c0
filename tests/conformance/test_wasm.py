"""The conformance suite on WebAssembly."""

from __future__ import annotations

from atoll.testing import DriverConformance


class TestWasm(DriverConformance):
    driver = "wasm"
