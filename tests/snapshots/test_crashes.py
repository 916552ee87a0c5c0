"""kill -9 of whoever changes what a sandbox stands on, at any moment: what was written is all there afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time

import pytest
from tests import thorough
from tests.escape.residue import start_time

from atoll import AtollError, Sandbox, SandboxGone

ROUNDS = thorough.amount(12, 6)
WRITE = """
import os, sys
for number in range(int(sys.argv[1]), int(sys.argv[1]) + 20):
    with open(f"f{number % 40}", "w") as file:
        file.write(str(number))
    os.makedirs(f"d{number % 3}/x", exist_ok=True)
    with open(f"d{number % 3}/x/{number % 5}", "w") as file:
        file.write(str(number))
"""
TELL = r"find . -type f -print0 | sort -z | xargs -0 -r sh -c 'for f; do printf %s\ ; cat $f; echo; done' sh"


def keeper_of(box):
    return box._core._record.handle.data["pid"]


class Killer(threading.Thread):
    """Kills the next errand of a keeper that it sees, a moment later."""

    def __init__(self, keeper, delay):
        super().__init__(daemon=True)
        self._keeper, self._delay = keeper, delay
        self.before = set(self._children())
        self.killed = False
        self.done = threading.Event()
        self.start()

    def _children(self):
        with open(f"/proc/{self._keeper}/task/{self._keeper}/children") as file:
            return [int(pid) for pid in file.read().split()]

    def run(self):
        while not self.done.is_set():
            new = [pid for pid in self._children() if pid not in self.before]
            if new:
                time.sleep(self._delay)  # anywhere in its work
                with contextlib.suppress(ProcessLookupError):
                    os.kill(new[-1], signal.SIGKILL)
                    self.killed = True
                return


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def tell(box):
    return box.run(["sh", "-c", TELL], check=True).stdout


@pytest.mark.parametrize("seed", thorough.amount([1, 2], [thorough.SEED]))
def test_the_death_of_the_errand_loses_nothing(make, snapshots, seed):
    """Whatever it was killed over, the sandbox's files are as they were, after a stop and resume too."""
    chance = random.Random(seed)
    box = make()
    box.checkpoint()
    killed, kept = 0, {}
    for number in range(ROUNDS):
        box.run(["python3", "-c", WRITE, str(20 * number)], check=True)
        told = tell(box)
        killer = Killer(keeper_of(box), chance.random() ** 2 * 0.03)
        try:
            box.snapshot(f"s{number}")
            kept[f"s{number}"] = told
        except AtollError:
            pass
        finally:
            killer.done.set()
            killer.join()
        killed += killer.killed
        if chance.random() < 0.4 or not _usable(box):
            box.stop()
            box.resume()
        assert tell(box) == told
    assert killed > ROUNDS / 3, "the control: there was somebody to kill"
    box.snapshot("last")
    kept["last"] = tell(box)
    names = {each.name for each in snapshots.list()}
    assert set(kept) <= names
    for name, told in kept.items():
        with Sandbox.create(snapshot=name) as one:
            assert tell(one) == told, name
    for name in names - set(kept):
        with Sandbox.create(snapshot=name) as one:
            tell(one)  # its maker died after it was named: it is whole


def _usable(box):
    """One whose errand died between two mounts, or while it made a process change directory, is to be started again."""
    try:
        return box.run("touch .try && rm .try").success
    except AtollError:
        return False


def test_the_death_of_the_errand_of_a_rollback_leaves_one_state_or_the_other(make, snapshots):
    chance = random.Random(5)
    box = make()
    box.checkpoint()  # its guest may be what the errand had made do something: then it ends, and is kept
    box.run(["python3", "-c", WRITE, "0"], check=True)
    box.snapshot("then")
    then = tell(box)
    for number in range(1, ROUNDS):
        box.run(["python3", "-c", WRITE, str(20 * number)], check=True)
        now = tell(box)
        killer = Killer(keeper_of(box), chance.random() * 0.03)
        outcomes = {now, then}
        try:
            box.rollback("then")
            outcomes = {then}
        except AtollError:
            pass
        finally:
            killer.done.set()
            killer.join()
        box.stop()
        box.resume()
        assert tell(box) in outcomes
    with Sandbox.create(snapshot="then") as one:
        assert tell(one) == then


def test_the_death_of_the_keeper_leaves_a_kept_sandbox_whole(make, snapshots, eventually):
    chance = random.Random(7)
    box = make()
    kept = {}
    for number in range(ROUNDS // 2):
        box.run(["python3", "-c", WRITE, str(20 * number)], check=True)
        told = tell(box)
        box.checkpoint()
        keeper = keeper_of(box)

        killer = threading.Timer(chance.random() * 0.06, kill, [keeper])
        killer.start()
        try:
            box.snapshot(f"s{number}")
            kept[f"s{number}"] = told
        except AtollError:
            pass
        killer.join()
        eventually(lambda keeper=keeper: start_time(keeper) is None)
        box = Sandbox.connect(box.id)
        box.resume()
        assert tell(box) == told
    for name, told in kept.items():
        with Sandbox.create(snapshot=name) as one:
            assert tell(one) == told, name
    box.destroy()


def test_the_death_of_the_keeper_of_one_that_is_not_kept_ends_it_and_no_snapshot(make, snapshots, eventually):
    box = make()
    box.files.write("a", "1")
    box.snapshot("then")
    os.kill(keeper_of(box), signal.SIGKILL)
    eventually(lambda: start_time(keeper_of(box)) is None)
    with pytest.raises(SandboxGone):
        box.run("true")
    assert make(snapshot="then").files.read("a") == "1"
