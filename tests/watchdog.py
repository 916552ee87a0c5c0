"""Ends the process of a test that does not heed its time limit.

pytest-timeout raises an exception in the test, once. A test that sits in foreign code does not notice, and one whose
teardown waits for what will not come waits for ever. faulthandler's clock needs neither the interpreter nor a second
chance: it says where every thread is and ends the process, of which pytest-xdist makes a new one.
"""

from __future__ import annotations

import faulthandler
import os
import sys

import pytest

GRACE = 60
"""For the teardown of a test that was told about its end."""

_STDERR = pytest.StashKey[int]()


def pytest_configure(config):
    # While a test runs, a file of pytest's is in the place of stderr, and nobody would read it after a sudden end.
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    limit = _limit(item)
    if limit:
        faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _limit(item):
    """As pytest-timeout finds it; 0 where there is none."""
    config = item.config
    if not config.pluginmanager.hasplugin("timeout") or config.getoption("usepdb", default=False):
        return 0
    marker = item.get_closest_marker("timeout")
    told = marker.args[0] if marker and marker.args else config.getoption("timeout")
    return float(config.getini("timeout") or 0) if told is None else float(told)
