"""A conformance class for each broken driver. Only `test_suite.py` runs them: all of them must fail."""

from __future__ import annotations

from atoll.testing import DriverConformance

from .broken import BROKEN

for _driver in BROKEN:
    _name = f"Test{_driver.__name__}"
    globals()[_name] = type(_name, (DriverConformance,), {"driver": _driver, "__module__": __name__})
