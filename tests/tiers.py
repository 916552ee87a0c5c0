"""What each of the three tiers runs; `python -m tests.tiers` prints the files of `make check`.

`make check` runs files that need neither programs nor a wall, and a smoke test of the default one. `make test` leaves
out what repeats elsewhere: behind each other wall the checks of what runs inside, which is the same code everywhere,
and of large tables all but a fixed part. `make test-thorough` leaves out nothing. The same commit runs the same tests
each time, and a file that is named on the command line is run whole.
"""

from __future__ import annotations

import os
import re
import zlib

import pytest
from tests import thorough

CHECK = (
    "tests/test_architecture.py",
    "tests/policy",
    "tests/unit",
    "tests/config",
    "tests/models",
    "tests/trajectories",
    "tests/review/test_changes.py",
    "tests/guest/test_channels.py",
    "tests/guest/test_forged_streams.py",
    "tests/guest/test_loop.py",
    "tests/guest/test_stepping.py",
    "tests/guest/test_switchboard.py",
    "tests/guest/test_tree_stream.py",
    "tests/conformance/test_fake.py",
    "tests/sandbox/test_parity.py",
    "tests/sandbox/test_lifecycle.py",
)

# Checks of the conformance suite by what they are about. A wall can break these; all else happens inside, by code that
# is the same behind every wall: the jail and the fake driver show it in full.
OF_A_WALL = {
    "lifecycle", "sharing", "rest", "output", "processes", "packages", "policy", "permissions", "history", "limits",
    "refusals", "lasting",
}  # fmt: skip
SHOWN_IN_FULL = ("test_jail.py", "test_fake.py")
# Where contexts or files are another implementation.
OF_ITS_OWN = {
    "test_wasm.py": {"code", "contexts", "files"},
    "test_jupyter.py": {"code", "contexts"},
    "test_jupyter_server.py": {"transfer", "sessions"},
}

# Of these one in so many: kills at every point, machines that break, engines, what other projects promise, libraries
# that draw.
TESTS = {
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

# Of the parameters of a function the first, and of the others one in so many. What takes no time is run whole.
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

# What a test runs once more as another user: one in so many.
AS_ANOTHER_USER = {"tests/codebases/": 2}


class Tier:
    """A plugin of pytest that leaves out what is not of the tier."""

    def __init__(self, config):
        told = os.environ.get("ATOLL_TIER")
        self._is_inner = told is not None
        # A run that a test starts names files, and does so for a whole suite.
        self._named = _named(config, "::" if self._is_inner else "")
        self._whole = thorough.THOROUGH or told == "whole"
        thorough.ENVIRONMENT["ATOLL_TIER"] = told or ("whole" if self._named else "part")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config, items):
        if self._whole:
            return
        seen, kept, left = set(), [], []
        for item in items:
            (kept if self._is_wanted(item, seen) else left).append(item)
        if left:
            items[:] = kept
            config.hook.pytest_deselected(items=left)

    def _is_wanted(self, item, seen):
        path, file = item.nodeid.partition("::")[0], item.path.name
        if path in self._named:
            return True
        group = _conformance_group(item)
        if group is not None:
            first = (path, group) not in seen
            seen.add((path, group))
            return first or file in SHOWN_IN_FULL or group in OF_A_WALL | OF_ITS_OWN.get(file, set())
        every = _entry(TESTS, path) or (_entry(AS_ANOTHER_USER, path) if self._is_inner else None)
        if every is None:
            function = re.sub(r"\[.*", "", item.nodeid, flags=re.DOTALL)
            every = _entry(PARAMETERS, path)
            if function not in seen:
                seen.add(function)
                return True
        return zlib.crc32(item.nodeid.encode()) % every == 0


def _conformance_group(item):
    """The group of a check of the conformance suite, as its module is called; None for other tests."""
    package, _, name = item.function.__module__.rpartition(".")
    return name if package == "atoll.testing.checks" else None


def _named(config, mark):
    """The files that the command line names, if there is such a mark in it, as node ids name them."""
    files = [argument.partition("::")[0] for argument in config.args if mark in argument]
    return {os.path.relpath(path, config.rootpath) for path in files if path.endswith(".py")}


def _entry(table, path):
    """Of the longest beginning of a path."""
    return next((table[start] for start in sorted(table, key=len, reverse=True) if path.startswith(start)), None)


if __name__ == "__main__":
    print(*CHECK)  # noqa: T201 - what it is for
