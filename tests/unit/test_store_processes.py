"""The registry under many processes: forks, races and sudden deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest

from atoll.policy.spec import make_spec
from atoll.store import Reservation, Row, Store
from atoll.types import Handle

# What sandbox.get_or_create does: ask until there is a sandbox, and make it when told to.
GET_OR_CREATE = """
import os, sys, time
from atoll.policy.spec import make_spec
from atoll.store import Row, Store
from atoll.types import Handle

store, spec, id = Store(sys.argv[1]), make_spec(labels={"k": "v"}), f"s{os.getpid()}"
print("ready", flush=True)
sys.stdin.readline()
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    got = store.reserve({"k": "v"}, lambda row: row.status == "running")
    if isinstance(got, Row):
        break
    if got.mine:
        time.sleep(0.05)
        store.fulfil(got, id, "fake", "running", spec.labels, spec, Handle("fake", id), time.time(), None)
    else:
        time.sleep(0.005)
print(got.id)
"""

RESERVE_AND_HANG = """
import sys, time
from atoll.store import Store
assert Store(sys.argv[1]).reserve({"k": "v"}, bool).mine
print("reserved", flush=True)
time.sleep(600)
"""


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "registry.db"))
    yield store
    store.close()


def start(code, store):
    return subprocess.Popen(
        [sys.executable, "-c", code, store._db.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_many_processes_at_once_make_the_file_and_one_sandbox(store):
    processes = [start(GET_OR_CREATE, store) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ids = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 8
    assert ids == {store.all()[0].id + "\n"}
    assert len(store.all()) == 1


def test_a_reserver_that_is_killed_makes_way_and_one_that_is_stopped_does_not(store):
    holder = start(RESERVE_AND_HANG, store)
    try:
        assert holder.stdout.readline() == "reserved\n"
        holder.send_signal(signal.SIGSTOP)
        assert store.reserve({"k": "v"}, bool) == Reservation({"k": "v"}, None)
        holder.kill()
        # Not yet reaped: dead all the same.
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        assert store.reserve({"k": "v"}, bool).mine
    finally:
        holder.kill()
        holder.communicate()


def test_a_process_killed_inside_a_transaction_leaves_nothing_of_it(store):
    code = """
import sys, time
from atoll.store import Store
store = Store(sys.argv[1])
with store._db.transaction() as db:
    db.execute("UPDATE sandboxes SET status = 'gone'")
    print("inside", flush=True)
    time.sleep(600)
"""
    register(store, "a1")
    process = start(code, store)
    assert process.stdout.readline() == "inside\n"
    process.kill()
    process.communicate()
    store.set_expires("a1", 1.0)
    assert (store.get("a1").status, store.get("a1").expires) == ("running", 1.0)


def register(store, id):
    spec = make_spec(labels={"k": "v"})
    store.add(id, "fake", "running", spec.labels, spec, Handle("fake", id), time.time(), None)


def in_child(work):
    """Run `work` in a forked child and give its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent must not run twice
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def has_open(name):
    """Whether a descriptor of this process leads to a file of that name."""
    return any(name in os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))


def test_after_a_fork_parent_and_child_each_have_a_connection_of_their_own(store):
    register(store, "before")
    assert has_open("registry.db")

    def child():
        assert not has_open("registry.db"), "the parent's connection came along"
        register(store, "from-child")
        store.close()

    assert in_child(child) == 0
    register(store, "after")
    assert {row.id for row in store.all()} == {"before", "from-child", "after"}


def test_a_child_of_a_parent_that_ended_still_writes_what_lasts(tmp_path):
    code = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
from atoll.store import Store
from tests.unit.test_store_processes import register
store = Store(sys.argv[1])
register(store, "parent")
if os.fork():
    os._exit(0)
for n in range(20):
    register(store, f"child-{n}")
store.close()
print("done", flush=True)
"""
    path = str(tmp_path / "registry.db")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    process = subprocess.run([sys.executable, "-c", code, path, root], capture_output=True, text=True, check=True)
    assert process.stdout == "done\n"
    store = Store(path)
    assert len(store.all()) == 21
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_writes_leaves_neither_side_stuck(store):
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            register(store, f"thread-{number}")
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(10):
            assert in_child(lambda number=number: (register(store, f"child-{number}"), store.close())) == 0
    finally:
        stop.set()
        thread.join()
    assert len([row for row in store.all() if row.id.startswith("child-")]) == 10


def test_a_row_of_get_or_create_is_a_row(store):
    register(store, "a1")
    assert isinstance(store.reserve({"k": "v"}, lambda row: True), Row)
