"""Which wall is taken when several would do."""

from __future__ import annotations

import pytest

from atoll import Sandbox, registry
from atoll.client import choosing
from atoll.driver import ISOLATION
from atoll.drivers.fake import FakeDriver
from atoll.errors import DriverMissing, InvalidInput, UnknownDriver, Unsupported, WallUnavailable
from atoll.io import BlockingIO
from atoll.types import Capability, Layer


class Weak(FakeDriver):
    name = "weak"


class Off(FakeDriver):
    name = "off"

    async def health(self):
        return [
            Layer("nicety", ready=False, detail="not there", required=False),
            Layer("engine", ready=False, detail="does not run", fix="start it"),
        ]


class Picky(FakeDriver):
    name = "picky"

    def prepare(self, spec, box, resume):
        raise Unsupported("Nothing is good enough.")


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Drivers under names of their own, and nothing seen yet."""
    own = {each.name: registry.BuiltIn(f"{__name__}:{each.__name__}") for each in (Weak, Off, Picky)}
    own["absent"] = registry.BuiltIn("no_such_module_at_all:Driver", "absent")
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, **own})
    monkeypatch.setattr(registry, "_load_built_in", _loading(registry._load_built_in))
    monkeypatch.setattr(choosing, "_looked", {})
    monkeypatch.delenv("ATOLL_STRONGEST", raising=False)


def _loading(load):
    ours = {each.name: each for each in (Weak, Off, Picky)}
    return lambda name, built_in: ours.get(name) or load(name, built_in)


def made_by(driver, **wishes):
    with Sandbox.create(driver, **wishes) as sandbox:
        return sandbox.info.driver


def test_the_first_that_is_ready_is_taken():
    assert made_by("off,absent,weak,fake") == "weak"
    assert made_by("fake, weak") == "fake"


def test_one_that_refuses_the_wish_is_passed_over():
    assert made_by("picky,weak") == "weak"


def test_what_was_passed_over_is_told_and_in_the_info():
    said = []
    with Sandbox.create("off,picky,weak", on_progress=said.append) as sandbox:
        assert sandbox.info.passed_over == {
            "off": "engine: does not run",
            "picky": "Nothing is good enough",
        }
    assert said == ["off was passed over: engine: does not run.", "picky was passed over: Nothing is good enough."]
    with Sandbox.create("weak", on_progress=said.append) as sandbox:
        assert sandbox.info.passed_over == {}
    assert len(said) == 2


def test_what_takes_long_the_first_time_is_said_before(monkeypatch):
    said = []

    async def first_use(self, spec):
        return "Building what is needed, once."

    monkeypatch.setattr(Weak, "first_use", first_use)
    Sandbox.create("weak", on_progress=said.append).destroy()
    assert said == ["Building what is needed, once."]


def test_the_spec_decides_as_well(tmp_path):
    assert made_by("fake,jail", packages=[]) == "fake"
    assert made_by("fake,jail", resources={"memory": "64M"}) == "jail"


def test_strongest_is_the_order_of_the_environment(monkeypatch):
    monkeypatch.setenv("ATOLL_STRONGEST", "off,fake")
    assert made_by("strongest") == "fake"


def test_strongest_needs_no_setting():
    with Sandbox.create("strongest") as sandbox:
        assert sandbox.info.walls
        assert sandbox.run("echo in").stdout == "in\n"


def test_the_default_may_be_an_order(monkeypatch):
    monkeypatch.setenv("ATOLL_DRIVER", "off,weak")
    assert made_by(None) == "weak"


def test_get_or_create_chooses_as_well():
    label = {"chosen": "here"}
    with Sandbox.get_or_create(label, "off,weak") as sandbox:
        assert sandbox.info.driver == "weak"
        assert Sandbox.get_or_create(label, "off,weak").id == sandbox.id


def test_without_any_the_reasons_are_told():
    with pytest.raises(WallUnavailable) as caught:
        Sandbox.create("off,absent,picky")
    assert "off: engine: does not run" in caught.value.message
    assert "absent: The driver 'absent' needs the package 'no_such_module_at_all'" in caught.value.message
    assert "picky: Nothing is good enough" in caught.value.message
    assert "atoll providers" in (caught.value.hint or "")


def test_one_name_alone_is_that_or_its_error():
    with pytest.raises(Unsupported):
        Sandbox.create("picky")
    with pytest.raises(DriverMissing):
        Sandbox.create("absent")


@pytest.mark.parametrize("driver", ["jial,fake", "fake,", ","])
def test_an_order_with_an_unknown_name_is_refused(driver):
    with pytest.raises(UnknownDriver):
        Sandbox.create(driver)


def test_what_is_no_name_is_refused():
    with pytest.raises(InvalidInput):
        Sandbox.create(["jail"])


def test_the_order_is_from_strong_to_weak_and_of_walls_that_run_everything():
    walls = [registry.load(name, BlockingIO()) for name in choosing.ORDER if name in registry.BUILT_IN]
    ranks = [ISOLATION.index(wall.isolation) for wall in walls]
    assert ranks == sorted(ranks, reverse=True)
    for wall in walls:
        assert {Capability.ISOLATION, Capability.COMMANDS, Capability.CODE} <= wall.capabilities


def test_a_wall_that_claims_isolation_has_a_level_and_no_other_has():
    for name in registry.BUILT_IN:
        if name in ("weak", "off", "picky", "absent"):
            continue
        wall = registry.load(name, BlockingIO())
        assert (ISOLATION.index(wall.isolation) >= ISOLATION.index("container")) == (
            Capability.ISOLATION in wall.capabilities
        )
