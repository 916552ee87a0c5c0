"""The suite tests itself: it finds what is broken, and nothing of it can be left out unseen."""

from __future__ import annotations

import inspect
import pathlib
import re

import pytest

from atoll import Sandbox, registry
from atoll.drivers.fake import FakeDriver
from atoll.errors import DriverError, UnknownDriver
from atoll.io import BlockingIO, drive
from atoll.testing import DriverConformance, waiting
from atoll.testing.needs import concerns, lacked, needed
from atoll.testing.suite import all_tests, checks_of, groups
from atoll.types import Capability

from .broken import BROKEN, SurvivesDestroy

SUITES = pathlib.Path(__file__).with_name("broken_suites.py")
QUIET = ["terminal", "timeout", "cacheprovider", "faulthandler", "logging"]


class Outcomes:
    """A plugin that remembers how each test ended, and what it said."""

    def __init__(self):
        self.failed = {}
        self.passed = set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid.partition("::")[2])
        elif report.failed:
            self.failed[report.nodeid.partition("::")[2]] = report.when, report.longreprtext


def cases():
    return [(driver, test) for driver, names in BROKEN.items() for test in names]


@pytest.fixture(scope="module", autouse=True)
def registered():
    """A suite makes its driver known to the registry; these are not to be known to other tests."""
    known = dict(registry.BUILT_IN)
    yield
    registry.BUILT_IN.clear()
    registry.BUILT_IN.update(known)


@pytest.fixture(scope="module")
def outcomes(registered):
    """All of the broken drivers, tested in one go by a pytest inside this one."""
    plugin = Outcomes()
    ids = [f"{SUITES}::Test{driver.__name__}::{test}" for driver, test in cases()]
    off = [word for name in QUIET for word in ("-p", f"no:{name}")]
    patience = waiting.PATIENCE, waiting.HURRY
    waiting.PATIENCE, waiting.HURRY = 2.5, 1.5  # they are going to fail anyway
    try:
        code = pytest.main(["--noconftest", "-o", "addopts=", "--import-mode=importlib", *off, *ids], [plugin])
    finally:
        waiting.PATIENCE, waiting.HURRY = patience
        clean_up()
    assert code == pytest.ExitCode.TESTS_FAILED
    return plugin


def clean_up():
    """What a test that fails leaves behind, and what will not go by itself."""
    for driver in BROKEN:
        for info in Sandbox.list(driver=driver.name):
            Sandbox.connect(info.id).destroy()
    for handle in SurvivesDestroy.alive:
        drive(FakeDriver(BlockingIO()).destroy(handle))


@pytest.mark.parametrize(("driver", "test"), cases(), ids=lambda value: getattr(value, "name", value))
def test_the_suite_finds(outcomes, driver, test):
    name = f"Test{driver.__name__}::{test}"
    assert name not in outcomes.passed
    when, story = outcomes.failed[name]
    assert when == "call", story


def test_what_finds_a_broken_driver_runs_on_a_whole_one():
    """On the fake itself in `test_fake.py`, or for those of a wall in `test_jail.py`; there it has to pass."""
    whole = [type(registry.load(name, BlockingIO())).capabilities for name in ("fake", "jail")]
    for _, test in cases():
        assert any(concerns(all_tests()[test], declared) for declared in whole), test


def test_a_suite_names_its_driver():
    with pytest.raises(TypeError, match="driver"):
        type("TestNothing", (DriverConformance,), {})
    with pytest.raises(UnknownDriver):
        type("TestUnknown", (DriverConformance,), {"driver": "no-such-driver"})


def test_a_driver_cannot_take_the_name_of_another():
    class Impostor(FakeDriver):
        name = "jail"

    with pytest.raises(DriverError, match="belongs to"):
        type("TestImpostor", (DriverConformance,), {"driver": Impostor})


@pytest.mark.parametrize("name", ["test_exit_codes_are_told", "sandbox", "make", "create", "teardown_class"])
@pytest.mark.parametrize("value", [None, lambda self: None])
def test_no_part_of_the_suite_can_be_replaced(name, value):
    with pytest.raises(TypeError, match=name):
        type("TestSoft", (DriverConformance,), {"driver": "fake", name: value})
    mixin = type("Mixin", (), {name: value})
    with pytest.raises(TypeError, match=name):
        type("TestSofter", (mixin, DriverConformance), {"driver": "fake"})


def test_tests_of_ones_own_may_be_added():
    suite = type("TestMore", (DriverConformance,), {"driver": "fake", "test_more": lambda self: None})
    assert callable(suite.test_more)
    again = type("TestAgain", (suite,), {"driver": "jail"})
    assert again.driver_class.name == "jail"
    assert callable(again.test_files_of_the_host_cannot_be_read)


def test_tests_are_picked_by_what_a_driver_declares():
    class NoCode(FakeDriver):
        name = "no-code"
        capabilities = FakeDriver.capabilities - {Capability.CODE}

    suite = type("TestNoCode", (DriverConformance,), {"driver": NoCode})
    assert suite.test_cells_share_their_state is None
    assert callable(suite.test_code_is_refused)
    assert callable(suite.test_exit_codes_are_told)
    whole = type("TestWhole", (DriverConformance,), {"driver": "fake"})
    assert callable(whole.test_cells_share_their_state)
    assert whole.test_code_is_refused is None


def test_every_capability_is_tested_and_its_absence_too():
    for capability in Capability:
        assert any(capability in needed(test) for test in all_tests().values()), capability
        assert any(capability in lacked(test) for test in all_tests().values()), capability


def test_no_two_groups_have_a_test_of_the_same_name():
    assert sum(len(checks_of(group)) for group in groups()) == len(all_tests())


def test_what_runs_commands_says_so():
    """Or a wall without commands could not pass it."""
    calls = re.compile(r"(?<!Sandbox)\.(run|run_many|start|stream|session|processes)\(")
    silent = [
        name
        for name, test in all_tests().items()
        if calls.search(inspect.getsource(test))
        and Capability.COMMANDS not in needed(test)
        and not lacked(test) & {Capability.COMMANDS, Capability.PTY}
    ]
    assert not silent
