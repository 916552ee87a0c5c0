"""A pytest plugin that writes down which test of the suite each driver has passed.

    pytest tests/conformance -p atoll.testing.record --record-conformance docs/reference/conformance.json

The file has one line a test, with the drivers that passed it. A run of some drivers replaces what was known of these
and keeps the rest; a test that did not pass is not there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

PROPERTY = "atoll_driver"
_OPTION = "--record-conformance"

Results = dict[str, frozenset[str]]
"""The tests that each driver has passed."""


def pytest_addoption(parser: Any) -> None:
    parser.addoption(_OPTION, metavar="FILE", default=None, help="write down what each driver has passed")


def pytest_configure(config: Any) -> None:
    path = config.getoption(_OPTION)
    # With xdist it is the controller that hears of everything.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(path))


class _Recorder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._passed: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, driver in report.user_properties:
            if name == PROPERTY:
                passed = self._passed.setdefault(str(driver), set())
                if report.passed:
                    passed.add(report.nodeid.rpartition("::")[2].partition("[")[0])

    def pytest_sessionfinish(self) -> None:
        known = read(self._path)
        known.update({driver: frozenset(tests) for driver, tests in self._passed.items()})
        write(self._path, known)


def read(path: str) -> Results:
    """What a file says; nothing where there is none. Raises ValueError for one that is no record."""
    try:
        with open(path, encoding="utf-8") as file:
            by_test: dict[str, list[str]] = json.load(file)
    except FileNotFoundError:
        return {}
    drivers = {driver for passed in by_test.values() for driver in passed}
    return {one: frozenset(test for test, passed in by_test.items() if one in passed) for one in drivers}


def write(path: str, results: Results) -> None:
    tests = sorted({test for passed in results.values() for test in passed})
    lines = [
        f"  {json.dumps(test)}: {json.dumps(sorted(driver for driver, passed in results.items() if test in passed))}"
        for test in tests
    ]
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
