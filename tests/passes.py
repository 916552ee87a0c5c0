"""Several passes of one run, as `.ci/run` makes them: the file ATOLL_PASSES remembers what came of each test,
and how long it took.

A later pass tries only what has not passed yet, whether it failed, or took its process along, or was never reached;
its count includes what earlier ones did, and it names what passes now and did not before.
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

PATH = os.environ.get("ATOLL_PASSES", "")


class Passes:
    """A plugin of pytest."""

    def __init__(self, path):
        self._path = path
        # A worker that takes the place of a dead one must see what the others saw.
        size = os.environ.setdefault("ATOLL_PASSES_SIZE", str(os.path.getsize(path) if os.path.exists(path) else 0))
        self._before = _read(path, int(size))
        self._troubled = set()
        self._verdicts = {}
        self._seconds = {}
        self._flaky = []

    def is_done(self, item):
        """Whether an earlier pass needs no repetition."""
        return self._before.get(item.nodeid, "failed") != "failed"

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if not self.is_done(item)]

    def pytest_runtest_logreport(self, report):
        if "PYTEST_XDIST_WORKER" in os.environ:
            return  # the process that hears all of them writes it down
        test = report.nodeid
        if report.failed:
            self._troubled.add(test)
            self._write(test, "failed")
        elif report.when != "teardown":
            self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
            told = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            if self._verdicts.get(test, "passed") == "passed":
                self._verdicts[test] = told
        elif test not in self._troubled:
            self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
            self._write(test, self._verdicts.get(test, "passed"))
            if test in self._before:
                self._flaky.append(test)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self._before and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # all that there was to try has passed before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter):
        for test in self._flaky:
            terminalreporter.write_line(f"FLAKY {test}")
        yield
        # All has been shown, and is only counted from here on.
        for verdict in self._before.values():
            if verdict != "failed":
                terminalreporter.stats.setdefault(verdict, []).append(SimpleNamespace(count_towards_summary=True))

    def _write(self, test, verdict):
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([test, verdict, round(self._seconds.get(test, 0.0), 2)]) + "\n")


def _read(path, size):
    """The last verdict on each test. A pass that was killed may have torn its last line."""
    if not size:
        return {}
    with open(path, "rb") as file:
        lines = file.read(size).splitlines()
    return {test: verdict for test, verdict, _ in map(json.loads, (line for line in lines if line.endswith(b"]")))}
