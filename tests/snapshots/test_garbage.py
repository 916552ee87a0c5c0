"""Layers are removed when nobody needs them, and never while somebody does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tests import thorough
from tests.snapshots import churn
from tests.snapshots.conftest import leftovers

from atoll import AtollError, Sandbox
from atoll.engine import launch
from atoll.engine.layers import Layers
from atoll.engine.layout import Layout


def layers(home):
    return {name for name in os.listdir(f"{home}/jail/layers") if name.startswith("ly-")}


def test_a_layer_goes_with_the_last_that_names_it(make, snapshots, home, eventually):
    box = make()
    box.files.write("a", "1")
    one = box.snapshot("one")
    twin = box.fork()
    other = make(snapshot="one")
    assert set(one.layers) <= layers(home)
    snapshots.delete("one")
    box.destroy()
    twin.destroy()
    Layers(Layout(home)).collect()
    assert set(one.layers) <= layers(home)
    assert other.files.read("a") == "1"
    other.destroy()
    eventually(lambda: layers(home) == set())


def test_destroy_collects_by_itself(make, snapshots, home, eventually):
    box = make()
    box.snapshot("one")
    box.files.write("a", "1")
    box.snapshot("two")
    snapshots.delete("one")
    snapshots.delete("two")
    assert len(layers(home)) == 2
    box.destroy()
    eventually(lambda: layers(home) == set())


def test_a_rollback_collects_what_it_forgets(make, snapshots, home, eventually):
    box = make()
    one = box.snapshot("one")
    box.files.write("a", "1")
    box.fork().destroy()  # one more layer, of which there is no snapshot
    assert len(layers(home)) == 2
    box.rollback("one")
    eventually(lambda: layers(home) == set(one.layers))


def test_a_stopped_sandbox_names_its_layers(make, snapshots, home):
    box = make()
    box.files.write("a", "1")
    box.snapshot("one")
    box.stop()
    snapshots.delete("one")
    assert len(layers(home)) == 1
    box.resume()
    assert box.files.read("a") == "1"


def test_a_sweep_collects_what_a_killed_keeper_left(make, snapshots, home, eventually):
    box = make()
    box.snapshot("one")
    snapshots.delete("one")
    os.kill(box._core._record.handle.data["pid"], signal.SIGKILL)
    launch.shut_down(home)
    Sandbox.create().destroy()  # a new zygote sweeps
    eventually(lambda: layers(home) == set())


def test_nothing_is_removed_while_somebody_is_about_to_name_it(make, snapshots, home):
    box = make()
    found = box.snapshot("one")
    box.destroy()
    kept = Layers(Layout(home))
    with kept.naming():
        kept.remove_snapshot("one")
        assert kept.collect() == []
        assert layers(home) == set(found.layers)
    assert kept.collect() == list(found.layers)


def test_what_cannot_be_read_may_name_anything(make, snapshots, home):
    found = make().snapshot("one")
    kept = Layers(Layout(home))
    kept.add_snapshot("broken", {})
    with open(kept.snapshot_path("broken"), "w") as file:
        file.write("{")
    kept.remove_snapshot("one")
    assert kept.collect() == []
    assert set(found.layers) <= layers(home)
    kept.remove_snapshot("broken")


def test_what_hostile_code_left_beside_a_box_is_not_read(home, snapshots):
    """A box that is being removed stands in pieces beside itself; one of them may be a pipe that is called `stack`."""
    places = Layout(home)
    places.make()
    piece = f"{places.boxes}/sb-abc.removing.1.1"
    os.mkdir(piece)
    os.mkfifo(f"{piece}/stack")
    try:
        signal.alarm(10)
        Layers(places).collect()
    finally:
        signal.alarm(0)
        os.unlink(f"{piece}/stack")
        os.rmdir(piece)


def test_the_lock_goes_with_its_holder(home, snapshots):
    places = Layout(home)
    places.make()
    holder = os.fork()
    if holder == 0:
        lock = os.open(f"{places.layers}/.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_SH)
        time.sleep(1000)
        os._exit(0)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    kept = Layers(places)
    kept.make("ly-unnamed", uid=None)
    assert kept.collect() == ["ly-unnamed"]


def keepers(home):
    """The pids of those that keep a sandbox of this state directory."""
    found = []
    for info in Sandbox.list():
        if info.status == "running":
            with contextlib.suppress(AtollError):
                found.append(Sandbox.connect(info.id)._core._record.handle.data["pid"])
    return found


@pytest.mark.timeout(600)
def test_many_at_once_with_kills_in_between(home, snapshots, eventually):
    """Afterwards every snapshot is whole, and nothing is left that nobody names."""
    chance = random.Random(11)
    command = [sys.executable, "-m", "tests.snapshots.churn"]
    workers = [subprocess.Popen([*command, str(seed), str(thorough.amount(60, 25))]) for seed in range(3)]
    seeds = iter(range(100, 200))
    deadline = time.monotonic() + 120
    killed = 0
    try:
        while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
            Layers(Layout(home)).collect()
            time.sleep(chance.random() * 0.5)
            dice = chance.random()
            if dice < 0.15 and killed < 12:
                number = chance.randrange(len(workers))
                workers[number].kill()
                workers[number].wait()
                workers[number] = subprocess.Popen([*command, str(next(seeds)), str(thorough.amount(20, 10))])
                killed += 1
            elif dice < 0.4 and (living := keepers(home)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(living), signal.SIGKILL)
                killed += 1
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
    assert {worker.wait() for worker in workers} <= {0, -signal.SIGKILL}, "each found what it expected"
    assert killed > 3, "the control: somebody was killed"
    found = snapshots.list()
    assert found, "the control: there are snapshots"
    for each in found:
        with Sandbox.create(snapshot=each.name) as box:
            churn.check(box)
    for info in Sandbox.list():
        with contextlib.suppress(AtollError):
            Sandbox.connect(info.id).destroy()
    for each in found:
        snapshots.delete(each.name)
    launch.shut_down(home)
    Sandbox.create().destroy()
    eventually(lambda: leftovers(home) == [])
