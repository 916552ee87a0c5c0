"""Who holds which limit, and which parked sandbox fits a job."""

from __future__ import annotations

import pytest

from atoll.engine import jobs, limits
from atoll.engine.cgroups import Hierarchy
from atoll.engine.layout import Layout
from atoll.engine.settings import BirthFailed, Settings, new_id


def settings(*, groups: bool = True, loop: bool = True, landlock: int = 7) -> Settings:
    hierarchy = Hierarchy(1, dict.fromkeys(("memory", "pids", "cpu", "freezer"), "/x")) if groups else None
    return Settings(Layout("/h"), not loop, hierarchy, landlock, b"", "/t", "/usr/bin/python3", (), "", loop, None)


def job(**changes: object) -> dict[str, object]:
    return {**jobs.COMMON, **changes}


def test_the_kernel_holds_every_limit_where_it_can():
    plan = limits.plan(job(cpu=0.5), settings())
    assert plan["enforcement"] == {
        "memory": "kernel",
        "pids": "kernel",
        "cpu": "kernel",
        "disk": "kernel",
        "sockets": "polled",
    }
    assert "as" not in plan["rlimits"]


def test_without_groups_and_loops_limits_are_polled_and_said_to_be():
    plan = limits.plan(job(), settings(groups=False, loop=False))
    assert plan["enforcement"] == {
        "memory": "polled",
        "pids": "kernel",
        "cpu": "none",
        "disk": "polled",
        "sockets": "polled",
    }
    assert plan["rlimits"]["as"] == jobs.COMMON["memory"]
    assert plan["rlimits"]["nproc"] == jobs.COMMON["pids"]


def test_strict_refuses_what_is_only_polled_and_names_it():
    assert limits.plan(job(strict=True), settings())["strict"]
    with pytest.raises(BirthFailed, match="disk and memory") as caught:
        limits.plan(job(strict=True), settings(groups=False, loop=False))
    assert caught.value.code == "unsupported"


def test_the_memory_of_sockets_is_declared_and_no_reason_for_strict_to_refuse():
    own = limits.plan(job(strict=True), settings())
    assert (own["enforcement"]["memory"], own["enforcement"]["sockets"]) == ("kernel", "polled")
    shared = limits.plan(job(strict=True, network="host"), settings())
    assert shared["enforcement"]["sockets"] == "none"


def test_a_cpu_limit_that_nobody_could_hold_is_refused():
    with pytest.raises(BirthFailed, match="cpu") as caught:
        limits.plan(job(cpu=1.0), settings(groups=False))
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "closed"),
        ({"env": {"A": "1"}, "lifetime": 5.0, "cpu": 1.0, "memory": 1 << 30}, "closed"),
        ({"network": "all"}, "open"),
        ({"source": "/src"}, "open"),
        ({"disk": 1 << 22}, "open"),
        ({"strict": True}, "open"),
        ({"image": "/img"}, "none"),
        ({"workdir": "/elsewhere"}, "none"),
        ({"network": "host"}, "none"),
        ({"resume": "sb-x"}, "none"),
    ],
)
def test_a_job_gets_the_parked_sandbox_that_fits(changes, kind):
    assert jobs.kind(job(**changes), has_group=True) == kind


def test_limits_that_a_process_sets_on_itself_need_an_open_one():
    assert jobs.kind(job(memory=1 << 30), has_group=False) == "open"


def test_ids_are_of_one_length_and_differ():
    ids = {new_id() for _ in range(200)}
    assert len(ids) == 200
    assert {len(each) for each in ids} == {15}


def test_the_walls_that_stand_are_named():
    assert "Landlock v7" in limits.walls(settings())
    assert not any("Landlock" in wall for wall in limits.walls(settings(landlock=0)))
    assert not any("control group" in wall for wall in limits.walls(settings(groups=False)))
