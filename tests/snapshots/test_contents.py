"""A snapshot has everything that its sandbox had, and nothing of what came later."""

from __future__ import annotations

import pytest
from tests.snapshots import kinds

from atoll import InvalidInput, Sandbox, SnapshotNotFound


def test_files_of_every_kind_come_back_in_a_new_sandbox(make):
    first = make()
    kinds.make(first)
    first.snapshot("one")
    before = kinds.tell(first)
    kinds.change(first)
    first.snapshot("two")
    after = kinds.tell(first)
    assert before != after, "the control must see a change"
    first.destroy()
    assert kinds.tell(make(snapshot="one")) == before
    assert kinds.tell(make(snapshot="two")) == after


def test_a_rollback_brings_back_files_and_variables_and_ends_what_runs(make):
    box = make()
    kinds.make(box)
    box.run_code("x = [1]")
    box.snapshot("then")
    before = kinds.tell(box)
    kinds.change(box)
    box.run_code("x.append(2)\ny = 1")
    assert box.run_code("x, y").text == "([1, 2], 1)"
    sleeper = box.start("sleep 1000")
    box.rollback("then")
    assert kinds.tell(box) == before
    assert box.run_code("x, 'y' in globals()").text == "([1], False)"
    assert sleeper.wait().exit_code == 137
    assert not box.run("pgrep sleep").success


HEADLESS = """
import ctypes, os, threading
threading.Thread(target=threading.Event().wait).start()
with open("/tmp/up", "w") as file:
    file.write(str(os.getpid()))
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def test_a_rollback_ends_a_process_whose_first_thread_has_ended(make):
    """The kernel calls it a zombie, while its other threads go on."""
    sandbox = make()
    sandbox.snapshot("first")
    sandbox.run("cat >/tmp/headless.py", stdin=HEADLESS, check=True)
    sandbox.run(
        "setsid python3 /tmp/headless.py >/tmp/out 2>&1 & until [ -s /tmp/up ]; do sleep 0.02; done", timeout=20
    )
    lives = f"ls /proc/{sandbox.files.read('/tmp/up')}/task"
    assert len(sandbox.run(lives, check=True).stdout.split()) == 2, "the control"
    sandbox.rollback("first")
    assert not sandbox.run(lives).success


def test_what_was_written_after_a_rollback_is_not_in_the_snapshot(make):
    box = make()
    box.files.write("a", "1")
    box.snapshot("then")
    for number in range(3):
        box.files.write("a", f"later {number}")
        box.files.write(f"b{number}", "")
        box.rollback("then")
        assert [entry.name for entry in box.files.list()] == ["a"]
        assert box.files.read("a") == "1"
    assert make(snapshot="then").files.read("a") == "1"


def test_two_sandboxes_of_one_snapshot_do_not_see_each_other(make):
    first = make()
    first.files.write("a", "1")
    first.snapshot("shared")
    one, other = make(snapshot="shared"), make(snapshot="shared")
    one.files.write("a", "one")
    other.files.remove("a")
    assert (first.files.read("a"), one.files.read("a"), other.files.exists("a")) == ("1", "one", False)
    assert make(snapshot="shared").files.read("a") == "1"


def test_twins_go_on_with_the_files_and_the_variables(make):
    box = make()
    kinds.make(box)
    box.run_code("x = 41")
    twins = box.fork(3)
    try:
        told = kinds.tell(box)
        for twin in twins:
            assert kinds.tell(twin) == told
            assert twin.run_code("x + 1").text == "42"
        twins[0].files.write("mine", "1")
        assert not twins[1].files.exists("mine")
        assert not box.files.exists("mine")
    finally:
        for twin in twins:
            twin.destroy()


def test_a_stopped_sandbox_keeps_what_it_stands_on(make, snapshots):
    box = make()
    kinds.make(box)
    box.snapshot("then")
    kinds.change(box)
    told = kinds.tell(box)
    box.stop()
    snapshots.delete("then")
    box.resume()
    assert kinds.tell(box) == told


def test_they_are_listed_newest_first_and_found_by_name(make, snapshots):
    one, other = make(), make()
    made = [one.snapshot("a"), other.snapshot("b"), one.snapshot("c")]
    assert [each.name for each in snapshots.list()] == ["c", "b", "a"]
    assert [each.name for each in snapshots.list(sandbox=one.id)] == ["c", "a"]
    assert snapshots.get("b") == made[1]
    assert [len(each.layers) for each in made] == [1, 1, 2]


def test_a_name_is_given_once_and_gone_after_delete(make, snapshots):
    box = make()
    box.snapshot("once")
    with pytest.raises(InvalidInput, match="already a snapshot 'once'"):
        box.snapshot("once")
    snapshots.delete("once")
    for call in (snapshots.get, snapshots.delete, box.rollback, lambda name: Sandbox.create(snapshot=name)):
        with pytest.raises(SnapshotNotFound, match="'once'"):
            call("once")
    box.snapshot("once")


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a\0b", "a b", "x" * 101, 7])
def test_what_is_no_name_is_refused(make, snapshots, name):
    for call in (snapshots.get, snapshots.delete):
        with pytest.raises(InvalidInput, match="name is"):
            call(name)


def test_the_snapshot_of_another_sandbox_is_refused_for_a_rollback(make):
    make().snapshot("theirs")
    box = make()
    with pytest.raises(InvalidInput, match="is of the sandbox"):
        box.rollback("theirs")
