"""Snapshots and forks by copies, on the driver that has nothing but a steward."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tests.escape import residue

from atoll import Sandbox, Snapshots, store
from atoll.engine.steward.shelf import Shelf
from atoll.errors import Busy, InvalidInput, SandboxGone, SnapshotNotFound
from atoll.home import state_dir


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "home"))


@pytest.fixture
def box():
    with Sandbox.create("fake", network="host") as sandbox:
        yield sandbox


def data_of(sandbox):
    return store.shared().get(sandbox.id).handle.data


def kept():
    return sorted(os.listdir(os.path.join(state_dir(), "fake", ".snapshots")))


def test_what_the_code_inside_has_locked_up_is_copied(box):
    box.run("mkdir d && echo x > d/f && chmod 000 d/f && chmod 000 d")
    box.snapshot("locked")
    with Sandbox.create("fake", network="host", snapshot="locked") as second:
        seen = second.run("stat -c %a d; chmod 700 d; stat -c %a d/f; chmod 600 d/f; cat d/f")
        assert seen.stdout == "0\n0\nx\n"


def test_a_snapshot_outlives_its_sandbox_and_is_listed_and_deleted(box):
    box.run("echo one > f")
    taken = box.snapshot("one")
    assert taken.size > 0
    box.destroy()
    assert [(each.name, each.driver) for each in Snapshots("fake").list()] == [("one", "fake")]
    with Sandbox.create("fake", network="host", snapshot="one") as second:
        Snapshots("fake").delete("one")
        assert second.run("cat f").stdout == "one\n"
    assert kept() == []
    with pytest.raises(SnapshotNotFound):
        Snapshots("fake").get("one")


def test_a_refused_snapshot_leaves_nothing_and_lets_all_go_on(box):
    held = box.start("exec 3>held; echo ready; sleep 1000")
    assert next(iter(held)).text == "ready\n"
    with pytest.raises(Busy, match="/workspace/held"):
        box.snapshot("no")
    with pytest.raises(Busy, match="/workspace/held"):
        box.fork()
    assert kept() == []
    assert box.run("echo on").stdout == "on\n"


def test_a_name_that_is_taken_meanwhile_is_refused_and_the_first_stays(tmp_path):
    shelf = Shelf(str(tmp_path / "shelf"))
    first, second = shelf.draft(), shelf.draft()
    for draft in (first, second):
        os.mkdir(draft.files)
    shelf.publish(first, "name", {"who": 1})
    with pytest.raises(InvalidInput, match="already"):
        shelf.publish(second, "name", {"who": 2})
    second.close()
    first.close()
    assert shelf.find("name")["who"] == 1
    assert os.listdir(tmp_path / "shelf") == ["name"]


def test_what_somebody_died_over_is_swept_up_and_what_is_being_made_is_not(tmp_path):
    shelf = Shelf(str(tmp_path / "shelf"))
    mine = shelf.draft()
    os.makedirs(tmp_path / "shelf" / ".draft-dead" / "files")
    other = shelf.draft()
    assert sorted(os.listdir(tmp_path / "shelf")) == sorted([os.path.basename(mine.path), os.path.basename(other.path)])
    mine.close()
    other.close()


def test_nobody_removes_a_snapshot_that_is_being_used(tmp_path):
    shelf = Shelf(str(tmp_path / "shelf"))
    draft = shelf.draft()
    os.mkdir(draft.files)
    shelf.publish(draft, "name", {})
    draft.close()
    with shelf.used("name") as (files, _):
        remover = threading.Thread(target=shelf.delete, args=("name",))
        remover.start()
        time.sleep(0.05)
        assert os.path.isdir(files)
        assert shelf.find("name")["name"] == "name"
    remover.join(10)
    assert os.listdir(tmp_path / "shelf") == []


def test_a_steward_that_dies_over_a_copy_leaves_no_snapshot(box):
    box.run("mkdir d && cd d && seq 20000 | xargs touch")
    failed: list[BaseException] = []

    def take():
        try:
            box.snapshot("half")
        except SandboxGone as error:
            failed.append(error)

    taker = threading.Thread(target=take)
    taker.start()
    shelf = os.path.join(state_dir(), "fake", ".snapshots")
    while not any(os.path.isdir(f"{shelf}/{name}/files/workspace") for name in (os.path.isdir(shelf) and kept()) or ()):
        assert taker.is_alive()
        time.sleep(0.001)
    processes = residue.descendants(data_of(box)["pid"])
    os.kill(data_of(box)["pid"], signal.SIGKILL)
    taker.join(30)
    # Held still, and behind no wall, they would never hear of it.
    for pid, _ in filter(residue.is_alive, processes):
        os.kill(pid, signal.SIGKILL)
    assert len(failed) == 1
    assert kept() == []


def test_a_rollback_brings_back_a_snapshot_more_than_once_and_leaves_nothing_beside(box):
    box.run("echo one > f")
    box.snapshot("one")
    for _ in range(2):
        box.run("echo two > f; echo more > g")
        box.rollback("one")
        assert box.run("cat f; ls").stdout == "one\nf\n"
    place = data_of(box)["box"]
    until = time.monotonic() + 10
    while (found := sorted(os.listdir(place))) != ["files", "steward"] and time.monotonic() < until:
        time.sleep(0.01)
    assert found == ["files", "steward"]
