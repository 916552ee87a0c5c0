"""Containers that are started ahead: who gets one, who does not, and that none is left."""

from __future__ import annotations

import os

import pytest

from atoll import InvalidInput, Sandbox
from atoll.drivers.docker import DockerDriver
from atoll.drivers.docker_engine import Engine
from atoll.drivers.docker_pool import SECONDS, _lot
from atoll.io import BlockingIO, drive
from atoll.policy.spec import make_spec
from atoll.testing.waiting import eventually

from ..containers import needs_docker, shared_engine

pytestmark = needs_docker


@pytest.fixture(scope="module", autouse=True)
def engine():
    with shared_engine() as place:
        yield Engine(str(place / "docker.sock"))


@pytest.fixture
def driver():
    return DockerDriver(BlockingIO())


def names(spec):
    try:
        return sorted(os.listdir(_lot(spec).directory))
    except FileNotFoundError:
        return []


def park(driver, spec, seconds=SECONDS):
    """Have one made ready, and wait until it is; how many were made."""
    lines = driver._fill(_lot(spec), spec, 1, seconds)
    for line in lines:
        with line:
            drive(driver._answer(line, "ready"))
    return len(lines)


def test_one_that_was_started_ahead_is_taken_by_who_wants_one_like_it(driver):
    spec = make_spec(resources={"pids": 99})
    assert park(driver, spec) == 1
    assert park(driver, spec) == 0
    (ahead,) = names(spec)
    with Sandbox.create("docker", resources={"pids": 98}) as other:
        assert other.id != ahead
    with Sandbox.create("docker", resources={"pids": 99}, labels={"a": "b"}) as labelled:
        assert labelled.id != ahead
    assert names(spec) == [ahead]
    wanted = {"resources": {"pids": 99}, "env": {"WORD": "given"}, "lifetime": 500}
    with Sandbox.create("docker", **wanted) as sandbox:
        assert sandbox.id == ahead
        assert sandbox.run("echo $WORD $HOME").stdout == "given /home/user\n"
        assert sandbox.run_code("import os; os.environ['WORD']").text == "'given'"
        assert sandbox.info.expires - sandbox.info.created == pytest.approx(500)
        assert names(spec) == []
        assert Sandbox.connect(ahead).run("echo found").stdout == "found\n"
        sandbox.stop()
        sandbox.resume()
        assert sandbox.run("echo $WORD").stdout == "given\n"


def test_who_finds_one_that_has_died_gets_another(driver, engine):
    spec = make_spec(resources={"pids": 97})
    park(driver, spec)
    (ahead,) = names(spec)
    place = _lot(spec).directory
    engine.delete(f"/containers/atoll-{ahead}", force=True)
    eventually(lambda: names(spec) == [], "it takes itself out")
    with open(f"{place}/{ahead}", "x", encoding="ascii"):
        pass  # as if it had not had the time
    with Sandbox.create("docker", resources={"pids": 97}) as sandbox:
        assert sandbox.id != ahead
        assert sandbox.run("echo works").stdout == "works\n"


def test_a_pool_fills_itself_up_again(driver, monkeypatch):
    spec = make_spec(resources={"pids": 96})
    monkeypatch.setenv("ATOLL_DOCKER_POOL", "1")
    with Sandbox.create("docker", resources={"pids": 96}), Sandbox.create("docker", resources={"pids": 96}):
        eventually(lambda: len(names(spec)) == 1 and not names(spec)[0].endswith(".making"), "one is started ahead")
        (ahead,) = names(spec)
        with Sandbox.create("docker", resources={"pids": 96}) as second:
            assert second.id == ahead
            eventually(lambda: len(names(spec)) == 1 and names(spec)[0] != ahead, "the next one is started ahead")
    monkeypatch.delenv("ATOLL_DOCKER_POOL")
    for name in names(spec):
        eventually(lambda: [n for n in names(spec) if n.endswith(".making")] == [], "it is ready")
        with Sandbox.create("docker", resources={"pids": 96}) as last:
            assert last.id in (name, name.removesuffix(".making"))


def test_nobody_wants_it_and_it_ends_by_itself(driver, engine):
    spec = make_spec(resources={"pids": 95})
    park(driver, spec, seconds=1.0)
    (ahead,) = names(spec) or ("gone",)
    eventually(lambda: names(spec) == [], "it gives up")
    filters = {"label": [f"atoll.id={ahead}"]}
    eventually(lambda: engine.get("/containers/json", all=True, filters=filters) == [], "its container is gone")
    eventually(lambda: not os.path.exists(f"{os.environ['ATOLL_HOME']}/docker/{ahead}"), "so are its files")


def test_a_size_that_is_none_is_refused_before_anything_starts(monkeypatch):
    for wrong in ("many", "-1", "1000"):
        monkeypatch.setenv("ATOLL_DOCKER_POOL", wrong)
        with pytest.raises(InvalidInput, match="ATOLL_DOCKER_POOL"):
            Sandbox.create("docker", labels={"pool": wrong.strip("-")})
    assert Sandbox.list({"pool": "many"}) == []
