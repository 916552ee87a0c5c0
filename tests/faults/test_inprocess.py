"""What breaks under an inprocess sandbox: each fault is told, others go on, and nothing is left behind."""

from __future__ import annotations

import os
import signal

import pytest

from atoll import Sandbox, SandboxGone
from atoll.engine import cgroups, usage
from atoll.home import state_dir
from atoll.testing.waiting import eventually


@pytest.fixture
def make():
    made = []

    def one(**wishes):
        made.append(Sandbox.create("inprocess", lifetime=600, **wishes))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.destroy()


def steward_of(sandbox):
    return sandbox._core._record.handle.data["pid"]


def guest_of(sandbox):
    return usage.children(steward_of(sandbox))[0]


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}") and not usage.is_zombie(pid)


def started(sandbox, number):
    """The pid of something that runs in it, out of everybody's sight."""
    sandbox.run(f"setsid sh -c 'echo $$ > pid-{number}; exec sleep {number}' >/dev/null 2>&1 &", check=True)
    eventually(lambda: sandbox.files.exists(f"pid-{number}") and sandbox.files.read(f"pid-{number}").strip(), "it runs")
    return int(sandbox.files.read(f"pid-{number}"))


def test_the_death_of_a_guest_is_told_and_takes_all_with_it(make):
    broken, other = make(), make()
    left = started(broken, 98761)
    os.kill(guest_of(broken), signal.SIGKILL)
    eventually(lambda: broken.refresh().status == "gone", "its end is seen")
    with pytest.raises(SandboxGone, match="signal 9 ended its guest"):
        broken.run("true")
    eventually(lambda: not is_alive(left), "what it had started is dead")
    assert other.run_code("1 + 1").text == "2"


def test_the_death_of_a_steward_takes_all_with_it(make):
    broken, other = make(), make()
    left, guest = started(broken, 98762), guest_of(broken)
    os.kill(steward_of(broken), signal.SIGKILL)
    eventually(lambda: not is_alive(left) and not is_alive(guest), "what it kept is dead")
    assert broken.refresh().status == "gone"
    with pytest.raises(SandboxGone):
        broken.run_code("1")
    assert other.run("echo on").stdout == "on\n"
    broken.destroy()
    assert_nothing_is_left_of(broken)


def test_what_a_steward_and_a_guest_that_die_at_once_leave_is_swept_up(make):
    broken = make()
    left = started(broken, 98763)
    steward, guest = steward_of(broken), guest_of(broken)
    for pid in (steward, guest):
        os.kill(pid, signal.SIGSTOP)
    for pid in (steward, guest):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(guest), "both are dead")
    assert is_alive(left)
    broken.destroy()
    eventually(lambda: not is_alive(left), "what was left is dead")
    assert_nothing_is_left_of(broken)


def assert_nothing_is_left_of(sandbox):
    assert not os.path.exists(f"{state_dir()}/inprocess/{sandbox.id}")
    hierarchy = cgroups.find()
    groups = set() if hierarchy is None else {f"{parent}/{sandbox.id}" for parent in hierarchy.parents.values()}
    assert [path for path in groups if os.path.exists(path)] == []


def test_the_warm_process_may_die_at_any_time(make):
    before = make()
    warm = parent_of(steward_of(before))
    os.kill(warm, signal.SIGKILL)
    eventually(lambda: not is_alive(warm), "it is dead")
    after = make()
    assert parent_of(steward_of(after)) != warm
    assert (before.run_code("1 + 1").text, after.run_code("1 + 1").text) == ("2", "2")


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_a_cell_without_end_and_one_that_crashes_harm_nobody(make):
    sandbox, other = make(), make()
    slow = sandbox.run_code("while True: pass", timeout=0.5)
    assert slow.timed_out
    assert not slow.success
    crashed = sandbox.run_code("import ctypes; ctypes.string_at(0)")
    assert not crashed.success
    assert crashed.error.name == "ContextDied"
    assert sandbox.run_code("'usable'").text == "'usable'"
    assert other.run_code("1").text == "1"


def test_a_cell_that_takes_all_memory_is_told_and_the_sandbox_goes_on(make):
    sandbox, other = make(resources={"memory": "128M"}), make()
    eaten = sandbox.run_code("x = bytearray(400 << 20); len(x)", timeout=60)
    assert not eaten.success
    assert eaten.error.name in ("OutOfMemory", "MemoryError")
    assert sandbox.run_code("len(bytearray(8 << 20))").text == str(8 << 20)
    assert other.run_code("1").text == "1"


def test_nothing_of_this_process_is_in_any_of_its_own(make, monkeypatch):
    monkeypatch.setenv("ATOLL_TEST_SECRET", "not for you")
    with open("/etc/hostname", "rb") as held:
        os.set_inheritable(held.fileno(), True)
        sandbox = make()
        sandbox.run_code("1")
        for pid in usage.descendants(steward_of(sandbox)):
            with open(f"/proc/{pid}/environ", "rb") as file:
                assert b"not for you" not in file.read()
            held_there = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            assert "/etc/hostname" not in held_there
