from __future__ import annotations

import sys

import pytest

from atoll import registry
from atoll.driver import Driver
from atoll.errors import DriverError, DriverMissing, InvalidInput, UnknownDriver
from atoll.io import BlockingIO

DRIVER = """
from atoll.driver import Driver

class Mine(Driver):
    name = "mine"
    summary = "a wall from outside"
    capabilities = frozenset()
    async def create(self, spec, register, resume=None): ...
    async def open_guest(self, handle): ...
    async def status(self, handle): ...
    async def destroy(self, handle): ...
    async def health(self): ...
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A package from outside that announces drivers by entry points."""
    name = f"outside_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(DRIVER)
    (tmp_path / f"{name}_needy.py").write_text("import a_vendor_sdk_that_is_not_installed.client\n")
    (tmp_path / f"{name}_broken.py").write_text("raise RuntimeError('half installed')\n")
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[atoll.drivers]\nmine = {name}:Mine\nneedy = {name}_needy:Needy\nbroken = {name}_broken:Broken\n"
        f"nothing = {name}:Driver.name_that_is_not_there\nfunction = os:getpid\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_the_default_is_jail_or_what_the_environment_says(monkeypatch):
    monkeypatch.delenv("ATOLL_DRIVER", raising=False)
    assert registry.default_name() == "jail"
    monkeypatch.setenv("ATOLL_DRIVER", "fake")
    assert registry.default_name() == "fake"


def test_an_outside_driver_is_found_by_its_entry_point(outside):
    io = BlockingIO()
    driver = registry.load("mine", io)
    assert isinstance(driver, Driver)
    assert driver.io is io
    assert {"mine", "needy", *registry.BUILT_IN} <= set(registry.names())
    assert registry.names() == sorted(registry.names())


def test_an_unknown_name_lists_the_known_and_suggests_the_nearest(outside):
    with pytest.raises(UnknownDriver, match=r"no driver 'jial'; the known .*fake.*jail.*Did you mean 'jail'\?"):
        registry.load("jial", BlockingIO())
    with pytest.raises(UnknownDriver) as caught:
        registry.load("zzzzzz", BlockingIO())
    assert caught.value.hint is None


def test_a_driver_whose_package_is_missing_says_how_to_get_it(outside):
    with pytest.raises(DriverMissing, match="pip install 'a_vendor_sdk_that_is_not_installed"):
        registry.load("needy", BlockingIO())


def test_a_built_in_whose_extra_is_missing_names_the_extra(outside, monkeypatch):
    monkeypatch.setitem(registry.BUILT_IN, "cloud", registry.BuiltIn(f"{outside}_needy:Needy", "cloud"))
    with pytest.raises(DriverMissing, match=r"'a_vendor_sdk_that_is_not_installed'.*pip install 'atoll\[cloud\]'"):
        registry.load("cloud", BlockingIO())


def test_a_module_of_atoll_that_is_missing_is_a_bug_and_no_missing_extra(monkeypatch):
    monkeypatch.setitem(registry.BUILT_IN, "odd", registry.BuiltIn("atoll.drivers.not_there:Odd"))
    with pytest.raises(ModuleNotFoundError):
        registry.load("odd", BlockingIO())


@pytest.mark.parametrize(
    ("name", "words"),
    [("broken", "cannot be loaded: .*half installed"), ("nothing", "cannot be loaded"), ("function", "no subclass")],
)
def test_an_outside_package_that_lies_is_a_driver_error(outside, name, words):
    with pytest.raises(DriverError, match=words):
        registry.load(name, BlockingIO())


@pytest.mark.parametrize("name", [None, 1, b"jail", Driver])
def test_a_name_is_text(name):
    with pytest.raises(InvalidInput, match="give a name such as 'jail'"):
        registry.load(name, BlockingIO())


def test_a_built_in_is_loaded_without_looking_at_entry_points(outside, monkeypatch):
    monkeypatch.setitem(registry.BUILT_IN, "here", registry.BuiltIn(f"{outside}:Mine"))
    monkeypatch.setattr(registry, "_entry_points", lambda: pytest.fail("it looked"))
    assert type(registry.load("here", BlockingIO())).__module__ == outside
    assert outside in sys.modules
