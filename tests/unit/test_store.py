from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, strategies as st
from tests.unit.test_labels import labels

from atoll import procid
from atoll.errors import InvalidInput, SandboxNotFound, StoreError
from atoll.policy.labels import labels_match
from atoll.policy.spec import make_spec
from atoll.store import Reservation, Store, shared
from atoll.types import Handle


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "registry.db")


@pytest.fixture
def store(path):
    store = Store(path)
    yield store
    store.close()


def add(store, id, *, status="running", created=None, expires=None, handle=None, **spec):
    made = make_spec(**spec)
    store.add(id, "fake", status, made.labels, made, handle, created or time.time(), expires)
    return made


def test_what_was_added_is_found_in_full(store):
    handle = Handle("fake", "a1", {"socket": "/x/\udcff", "pid": 7})
    spec = add(store, "a1", created=5.0, expires=9.5, handle=handle, env={"A": "\udcff"}, labels={"team": "rød"})
    row = store.get("a1")
    assert row == ("a1", "fake", "running", {"team": "rød"}, spec, handle, 5.0, 9.5, None)


def test_an_unknown_id_is_sandbox_not_found(store):
    add(store, "a1")
    for call in (
        lambda: store.get("b"),
        lambda: store.set_status("b", "gone"),
        lambda: store.set_expires("b", 1.0),
        lambda: store.set_handle("b", Handle("fake", "b")),
    ):
        with pytest.raises(SandboxNotFound, match="No sandbox has the id 'b'"):
            call()


def test_an_id_is_given_once(store):
    add(store, "a1")
    with pytest.raises(InvalidInput, match="registered already"):
        add(store, "a1")
    assert len(store.all()) == 1


def test_changes_are_seen_by_another_store(store, path):
    add(store, "a1")
    other = Store(path)
    store.set_status("a1", "paused")
    store.set_expires("a1", 42.0)
    store.set_handle("a1", Handle("fake", "a1", {"n": 2}))
    row = other.get("a1")
    assert (row.status, row.expires, row.handle) == ("paused", 42.0, Handle("fake", "a1", {"n": 2}))
    assert store.remove("a1")
    assert not store.remove("a1")
    assert other.all() == []
    other.close()


def test_a_row_that_is_creating_knows_its_maker_until_it_is_ready(store):
    add(store, "a1", status="creating")
    assert store.get("a1").maker == procid.current()
    store.set_status("a1", "running")
    assert store.get("a1").maker is None


def test_find_gives_those_that_carry_all_labels_newest_first(store):
    add(store, "old", created=1.0, labels={"team": "red", "n": "1"})
    add(store, "new", created=2.0, labels={"team": "red"})
    add(store, "blue", created=3.0, labels={"team": "blue"})
    add(store, "tricky", created=4.0, labels={"note": '"team":"red"', "team2": "red"})
    assert [row.id for row in store.find({"team": "red"})] == ["new", "old"]
    assert [row.id for row in store.find({"team": "red", "n": "1"})] == ["old"]
    assert [row.id for row in store.find({"note": '"team":"red"'})] == ["tricky"]
    assert [row.id for row in store.all()] == ["tricky", "blue", "new", "old"]


@given(st.lists(labels, max_size=4), labels)
def test_find_agrees_with_the_meaning_of_labels(tmp_path_factory, many, wanted):
    store = Store(str(tmp_path_factory.mktemp("find") / "registry.db"))
    for number, tags in enumerate([*many, {**wanted, "more": "x"}]):
        add(store, str(number), labels=tags)
    expected = {row.id for row in store.all() if labels_match(row.labels, wanted)}
    assert {row.id for row in store.find(wanted)} == expected
    store.close()


def test_a_unique_beginning_of_an_id_is_enough(store):
    for id in ("abc1", "abd2", "ab", "x%y", "xzy"):
        add(store, id)
    assert store.resolve("abc").id == "abc1"
    assert store.resolve("ab").id == "ab"
    assert store.resolve("x%").id == "x%y"
    with pytest.raises(InvalidInput, match="several ids: ab, abc1, abd2"):
        store.resolve("a")
    with pytest.raises(SandboxNotFound):
        store.resolve("zz")
    with pytest.raises(InvalidInput, match="empty"):
        store.resolve("")


def test_a_reservation_is_had_once_and_is_no_sandbox(store):
    mine = store.reserve({"k": "v"}, lambda row: True)
    assert mine.mine
    assert store.reserve({"k": "v"}, lambda row: True) == Reservation({"k": "v"}, None)
    assert store.reserve({"k": "other"}, lambda row: True).mine
    assert store.all() == []
    with pytest.raises(SandboxNotFound):
        store.resolve(mine.token)
    with pytest.raises(SandboxNotFound):
        store.get(mine.token)
    assert not store.remove(mine.token)


def test_a_reservation_with_more_labels_serves_who_asks_for_fewer_and_not_the_other_way(store):
    assert store.reserve({"a": "1", "b": "2"}, bool).mine
    assert not store.reserve({"a": "1"}, bool).mine
    assert store.reserve({"a": "1", "c": "3"}, bool).mine


def fulfil(store, reservation, id):
    spec = make_spec(labels=reservation.labels)
    handle = Handle("fake", id)
    store.fulfil(reservation, id, "fake", "running", spec.labels, spec, handle, time.time(), None)


def test_fulfilling_puts_the_sandbox_in_its_place(store):
    reservation = store.reserve({"k": "v"}, bool)
    fulfil(store, reservation, "s1")
    assert [row.id for row in store.all()] == ["s1"]
    assert store.reserve({"k": "v"}, lambda row: row.status == "running").id == "s1"


def test_releasing_lets_the_next_one_make_it(store):
    reservation = store.reserve({"k": "v"}, bool)
    store.release(reservation)
    store.release(reservation)
    assert store.reserve({"k": "v"}, bool).mine


def test_a_reservation_that_was_lost_cannot_be_fulfilled(store):
    reservation = store.reserve({"k": "v"}, bool)
    store.release(reservation)
    for lost in (reservation, Reservation({"k": "v"}, None)):
        with pytest.raises(StoreError, match="no longer held"):
            fulfil(store, lost, "s1")
    assert store.all() == []


def test_rows_that_are_not_live_are_passed_over_each_judged_once(store):
    add(store, "old", created=1.0, labels={"k": "v"})
    add(store, "new", created=2.0, labels={"k": "v"})
    judged = []

    def live(row):
        judged.append(row.id)
        return row.id == "old"

    assert store.reserve({"k": "v"}, live).id == "old"
    assert judged == ["new", "old"]
    assert store.reserve({"k": "v"}, lambda row: False).mine


def test_judging_a_row_may_use_the_store(store):
    add(store, "dead", labels={"k": "v"})
    assert store.reserve({"k": "v"}, lambda row: not store.remove(row.id)).mine


def test_a_reservation_of_a_dead_process_is_taken_over(store, path):
    code = "import sys; from atoll.store import Store; print(Store(sys.argv[1]).reserve({'k': 'v'}, bool).mine)"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert store.reserve({"k": "v"}, bool).mine


def test_many_threads_share_one_store(store):
    failures = []

    def work(number):
        try:
            for step in range(20):
                id = f"{number}-{step}"
                add(store, id, labels={"worker": str(number)})
                store.set_status(id, "paused")
                assert store.get(id).status == "paused"
                if step % 2:
                    store.remove(id)
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.all()) == 40


def test_opening_a_current_file_runs_no_migration(store, path, monkeypatch):
    add(store, "a1")
    second = Store(path)
    monkeypatch.setattr(second._db, "_migrate", lambda connection: pytest.fail("it migrated"))
    assert second.get("a1").id == "a1"
    second.close()


def test_a_file_of_a_newer_atoll_is_refused_and_left_alone(store, path):
    add(store, "a1")
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match=r"newer atoll.*Upgrade atoll"):
        store.all()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sandboxes").fetchone() == (1,)
    db.close()


def test_a_file_that_is_no_database_is_explained(store, path):
    with open(path, "w") as file:
        file.write("hello " * 1000)
    with pytest.raises(StoreError, match=r"cannot be used: .*Move the file away"):
        store.all()


def test_a_missing_directory_is_explained(tmp_path):
    with pytest.raises(StoreError, match=r"cannot be used: .*ATOLL_HOME"):
        Store(str(tmp_path / "no/registry.db")).all()


def test_a_row_that_no_atoll_wrote_is_named(store, path):
    add(store, "broken")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE sandboxes SET spec = '{\"future\": 1}'")
    db.close()
    with pytest.raises(StoreError, match=r"row of the sandbox 'broken' cannot be read: .*'future'"):
        store.get("broken")


def test_a_failed_change_leaves_the_store_usable(store):
    add(store, "a1")
    with pytest.raises(StoreError, match="cannot be used"):
        store._db.write("INSERT INTO nowhere VALUES (1)")
    with pytest.raises(InvalidInput):
        add(store, "a1")
    add(store, "a2")
    assert len(store.all()) == 2


def test_a_closed_store_opens_again_on_use_and_leaves_no_descriptor(store):
    add(store, "a1")
    before = len(os.listdir("/proc/self/fd"))
    store.close()
    assert len(os.listdir("/proc/self/fd")) < before
    assert store.get("a1").id == "a1"


def test_the_shared_store_follows_the_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "one"))
    one = shared()
    assert shared() is one
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "two"))
    assert shared() is not one
