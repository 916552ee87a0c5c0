"""kill -9 of each process of the system: a clear error, no hang, nothing left, and the listing tells the truth."""

import contextlib
import os
import signal
import threading

import pytest
from tests.escape import residue
from tests.escape.harness import Refused, eventually
from tests.faults import truth

KILL = signal.SIGKILL


def stem_of(zygote):
    """The zygote's oldest living child, which every keeper is forked from."""
    with open(f"/proc/{zygote}/task/{zygote}/children") as file:
        return next(pid for pid in map(int, file.read().split()) if residue.start_time(pid) is not None)


def first_process(box):
    """The child of the keeper that is process 1 of its own namespace."""
    with open(f"/proc/{box.handle['pid']}/task/{box.handle['pid']}/children") as file:
        for pid in map(int, file.read().split()):
            with open(f"/proc/{pid}/status") as status:
                numbers = next(line for line in status if line.startswith("NSpid:")).split()
            if numbers[-1] == "1" and len(numbers) > 2:
                return pid
    raise AssertionError("the sandbox has no first process")


def ended_with(pending):
    """The name of the error that an operation ends with, or its value."""
    try:
        return pending.get()
    except Refused as refusal:
        return refusal.type


def test_the_death_of_the_zygote_harms_no_sandbox(maker):
    box = maker.create()
    old = maker.zygote()
    running = box.begin("run", "sleep 0.3; echo finished")
    os.kill(old, KILL)
    assert running.get()["stdout"] == "finished\n"
    truth.check(maker, [box])
    assert maker.zygote() != old
    box.destroy()
    truth.check(maker)


def test_the_death_of_the_stem_is_noticed_and_mended(maker):
    box = maker.create()
    zygote = maker.zygote()
    os.kill(stem_of(zygote), KILL)
    eventually(lambda: residue.start_time(zygote) is None, "a zygote without a stem ends")
    truth.check(maker, [box])
    box.destroy()
    truth.check(maker)


def test_the_death_of_the_zygote_in_a_burst_costs_at_most_what_it_was_making(maker):
    maker.create().destroy()
    pending = [maker.begin("create") for _ in range(12)]
    os.kill(maker.zygote(), KILL)
    outcomes = [ended_with(each) for each in pending]
    failed = {each for each in outcomes if isinstance(each, str)}
    assert failed <= {"CreateFailed", "WallUnavailable"}
    ids = [each["id"] for each in outcomes if isinstance(each, dict)]
    assert {info["id"] for info in maker.list()} == set(ids)
    for id in ids:
        assert maker.call("method", id=id, name="run", arguments=["echo x"], keywords={})["stdout"] == "x\n"
        maker.call("method", id=id, name="destroy", arguments=[], keywords={})
    truth.check(maker)


def test_the_death_of_a_keeper_ends_its_sandbox_and_no_other(maker):
    box, other = maker.create(), maker.create()
    box.run("setsid sleep 900 & echo", check=True)
    running = box.begin("run", "sleep 60")
    processes = eventually(lambda: _at_least(box, 5), "the command runs")
    os.kill(box.handle["pid"], KILL)
    assert ended_with(running) == "SandboxGone"
    eventually(lambda: not any(map(residue.is_alive, processes)), "everything behind the wall is dead")
    assert ended_with(box.begin("run", "true")) == "SandboxGone"
    told = [(info["status"], info["reason"]) for info in maker.list() if info["id"] == box.id]
    assert told in ([("gone", "its keeper is gone")], [])
    assert residue.traces(maker, box, processes) == {}
    truth.check(maker, [other])


def _at_least(box, count):
    found = residue.descendants(box.handle["pid"])
    return found if len(found) >= count else None


def test_the_death_of_the_first_process_ends_the_sandbox(maker):
    box = maker.create()
    running = box.begin("run", "sleep 60")
    processes = eventually(lambda: _at_least(box, 3), "the command runs")
    os.kill(first_process(box), KILL)
    assert ended_with(running) == "SandboxGone"
    eventually(lambda: residue.traces(maker, box, processes) == {}, "the keeper cleans up")
    truth.check(maker)


def test_the_death_of_a_context_costs_its_state_and_nothing_else(maker):
    with maker.create() as box:
        box.code("x = 1; import os")
        inside = int(box.code("print(os.getpid())")["stdout"])
        done = box.code("os.kill(os.getpid(), 9)")
        assert done["error"]
        again = box.code("x")
        assert again["state_lost"] or again["error"]["name"] == "NameError"
        assert box.code("1 + 1")["results"][0]["data"]["text/plain"] == "2"
        assert inside > 1


def test_a_parked_sandbox_that_is_killed_is_replaced(maker):
    maker.create().destroy()
    zygote = maker.zygote()
    for pid in residue.siblings(zygote):
        if pid not in (zygote, stem_of(zygote)):
            # With its keeper a midwife may go by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, KILL)
    boxes = [maker.create() for _ in range(8)]
    for box in boxes:
        assert box.run("echo x")["stdout"] == "x\n"
        box.destroy()
    truth.check(maker)


def test_a_sandbox_outlives_the_maker_that_has_made_it(maker):
    box = maker.create()
    box.call("files.write", "kept.txt", "kept")
    maker.restart()
    maker.call("connect", id=box.id)
    assert box.call("files.read", "kept.txt") == "kept"
    truth.check(maker, [box])
    box.destroy()
    truth.check(maker)


def test_a_maker_that_dies_before_it_has_its_sandbox_leaves_none(maker):
    """At many moments of many creations at once."""
    maker.create().destroy()
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05):
        pending = [maker.begin("create") for _ in range(4)]
        threading.Event().wait(delay)
        maker.restart()
        for each in pending:
            ended_with(each)
        for info in maker.list():
            assert info["status"] == "running"
            maker.call("connect", id=info["id"])
            assert maker.call("method", id=info["id"], name="run", arguments=["echo x"], keywords={})["stdout"] == "x\n"
            maker.call("method", id=info["id"], name="destroy", arguments=[], keywords={})
    truth.check(maker)


@pytest.mark.parametrize("count", [4])
def test_many_that_start_a_zygote_at_once_end_with_one(maker, count):
    helpers = [maker.twin() for _ in range(count)]
    try:
        pending = [helper.begin("create") for helper in helpers]
        made = [each.get() for each in pending]
        zygotes = {helper.zygote() for helper in helpers}
        assert len(zygotes) == 1
        assert {_parent(each["handle"]["pid"]) for each in made} == zygotes
        assert len({each["id"] for each in made}) == count
        assert {info["id"] for info in maker.list()} == {each["id"] for each in made}
    finally:
        for helper in helpers:
            helper.leave()
    for info in maker.list():
        maker.call("connect", id=info["id"])
        maker.call("method", id=info["id"], name="destroy", arguments=[], keywords={})
    truth.check(maker)


def _parent(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(next(line for line in file if line.startswith("PPid:")).split()[1])
