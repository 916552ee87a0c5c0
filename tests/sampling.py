"""Which tests a run leaves out, so that it stays short: of a large table one in so many is tried each day.

Only a run of the whole suite leaves anything out: a file that is named on the command line is tried whole. So is all
with ATOLL_THOROUGH=1. A test has its day by its name, so that within as many days as the number below all are tried,
and every process of pytest-xdist leaves out the same.
"""

from __future__ import annotations

import os
import re
import zlib
from types import SimpleNamespace

import pytest
from tests import thorough

# Of these one in so many, whatever they are: each check of the conformance suite runs behind a dozen walls, and so is
# tried behind a few of them every day. The others take longest for what they are: kills at every point, machines that
# break, engines, what other projects promise, libraries that draw.
CHECKS = {
    "tests/conformance/test_": 5,
    "tests/conformance/test_guide": 1,
    "tests/conformance/test_matrix": 1,
    "tests/conformance/test_suite": 1,
    "tests/docker/": 2,
    "tests/faults/": 3,
    "tests/guest/test_charts": 2,
    "tests/guest/test_display_libraries": 2,
    "tests/guest/test_figures": 2,
    "tests/guest/test_programs_": 2,
    "tests/packages/": 2,
    "tests/parity/": 3,
    "tests/review/test_hostile": 2,
    "tests/review/test_kills": 2,
    "tests/snapshots/": 2,
}

# Of the parameters of a function the first, and of the others one in so many. What hostile code tries is tried as root
# every day, and as a user, which is most of its parameters, every other day. What takes no time is tried whole.
PARAMETERS = {
    "tests/": 2,
    "tests/agent": 1,
    "tests/config": 1,
    "tests/guest/": 3,
    "tests/mcp": 1,
    "tests/models": 1,
    "tests/policy/": 1,
    "tests/sandbox/": 3,
    "tests/test_architecture": 1,
    "tests/test_docs.py": 4,
    "tests/unit/": 1,
    "tests/views/test_table": 4,
}

# Of what another user tries once more, in a run that a test starts, one in so many.
AGAIN = {
    "tests/codebases/": 2,
}


class Sampling:
    """A plugin of pytest."""

    def __init__(self, config):
        told = os.environ.get("ATOLL_SAMPLE")
        self._again = told is not None
        # A run that a test starts names files, and does so for a whole suite.
        self._named = _named(config, "::" if self._again else "")
        self._whole = thorough.THOROUGH or told == "0"
        self.left_out = 0
        thorough.ENVIRONMENT["ATOLL_SAMPLE"] = told or ("0" if self._named else "1")

    @pytest.hookimpl(tryfirst=True)  # what is left of an earlier pass must not change what is left out
    def pytest_collection_modifyitems(self, config, items):
        if self._whole:
            return
        seen, kept, left = set(), [], []
        for item in items:
            (kept if self._is_wanted(item.nodeid, seen) else left).append(item)
        if left:
            items[:] = kept
            self.left_out = len(left)
            config.hook.pytest_deselected(items=left)

    def _is_wanted(self, test, seen):
        path = test.partition("::")[0]
        if path in self._named:
            return True
        every = _entry(CHECKS, path) or (_entry(AGAIN, path) if self._again else None)
        if every is None:
            function = re.sub(r"\[.*", "", test, flags=re.DOTALL)
            every = _entry(PARAMETERS, path)
            if every is None or function not in seen:
                seen.add(function)
                return True
        return (zlib.crc32(test.encode()) + thorough.SEED) % every == 0

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter):
        if self.left_out:
            told = f"{self.left_out} tests were left out today: ATOLL_THOROUGH=1 tries all (tests/sampling.py)."
            terminalreporter.write_line(told)
        yield
        # The process that counts heard nothing of what the workers of pytest-xdist left out.
        counted = terminalreporter.stats.setdefault("deselected", [])
        counted += [SimpleNamespace(count_towards_summary=True)] * (self.left_out - len(counted))


def _named(config, mark):
    """The files that the command line names, if there is such a mark in it, as node ids name them."""
    files = [argument.partition("::")[0] for argument in config.args if mark in argument]
    return {os.path.relpath(path, config.rootpath) for path in files if path.endswith(".py")}


def _entry(table, path):
    """Of the longest beginning of a path."""
    return next((table[start] for start in sorted(table, key=len, reverse=True) if path.startswith(start)), None)
