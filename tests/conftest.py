"""What every test shares: a state directory of its own, with a path short enough for Unix sockets."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from tests import thorough, tiers, watchdog

_home = tempfile.mkdtemp(prefix="at-", dir="/tmp")
os.environ["ATOLL_HOME"] = _home
os.environ.update(thorough.ENVIRONMENT)

# A background job of a shell ignores SIGINT, and what it starts does: nothing could be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# A noisy machine must not fail a test, and a failure must come back on the next run.
settings.register_profile("atoll", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("atoll")


# What takes longest begins first, or it is what everybody waits for at the end: pytest-xdist would begin with the files
# of most tests, and the longest have few.
LONGEST = [
    "test_docs",
    "escape/test_packages",
    "snapshots/test_as_user",
    "conformance/test_jupyter_server",
    "faults/test_host",
    "conformance/test_docker",
    "conformance/test_gvisor",
    "guest/test_display_libraries",
    "faults/test_state",
    "guest/test_cells",
    "escape/test_limits",
    "escape/test_review_issue4",
    "faults/test_kills",
    "docker/test_runtimes",
    "conformance/test_jupyter",
    "conformance/test_suite",
    "conformance/test_jail_as_user",
    "packages/test_installing",
    "packages/test_nursery",
    "faults/test_lasting",
    "codebases/test_as_user",
    "review/test_as_user",
    "snapshots/test_garbage",
    "snapshots/test_crashes",
    "snapshots/test_long_chains",
]


def pytest_configure(config):
    if "ATOLL_TIER" in thorough.ENVIRONMENT:
        return  # a test that runs pytest in its own process
    config.pluginmanager.register(watchdog, "atoll-watchdog")
    config.pluginmanager.register(tiers.Tier(config), "atoll-tier")


def pytest_report_header():
    return f"ATOLL_THOROUGH={int(thorough.THOROUGH)} ATOLL_SEED={thorough.SEED}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from tests import scheduling

    return scheduling.FilesInOrder(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if " at 0x" in item.nodeid:
            # Each worker has other addresses, and pytest-xdist runs nothing unless all have the same names.
            raise pytest.UsageError(f"{item.nodeid} has an address in its name: give its parameters other ids.")
    if "PYTEST_XDIST_WORKER" in os.environ:
        order = {f"tests/{name}.py": number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def pytest_unconfigure() -> None:
    shutil.rmtree(_home, ignore_errors=True)
