"""What a sandbox uses, as its keeper sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from atoll.engine import usage
from atoll.engine.watchdog import Watchdog
from atoll.testing.waiting import eventually


@pytest.fixture
def tree():
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 20
    # The second must have become its program: until then the first waits for it where no signal reaches.
    while [_name(pid) for pid in usage.descendants(process.pid)].count("sleep") < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    yield process.pid
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_tree_is_found_and_measured(tree):
    pids = usage.descendants(tree)
    assert len(pids) == 2
    assert usage.memory(pids) > 1 << 20
    assert usage.cpu_seconds(pids) >= 0


def test_signals_reach_the_whole_tree(tree):
    usage.signal_all(tree, signal.SIGSTOP, 10.0)
    deadline = time.monotonic() + 20
    while (states := {_state(pid) for pid in usage.descendants(tree)}) != {"T"}:
        assert time.monotonic() < deadline, states
        time.sleep(0.01)


def _name(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_disk_counts_blocks_and_not_lengths(tmp_path):
    (tmp_path / "full").write_bytes(b"x" * 300_000)
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert 300_000 <= usage.disk(str(tmp_path)) < 1 << 20


def test_disk_follows_no_links(tmp_path):
    big = tmp_path / "big"
    big.mkdir()
    (big / "file").write_bytes(b"x" * 500_000)
    box = tmp_path / "box"
    box.mkdir()
    (box / "link").symlink_to(big)
    assert usage.disk(str(box)) < 100_000


def test_a_directory_of_many_names_is_measured_a_little_at_a_time(tmp_path, monkeypatch):
    for number in range(1000):
        (tmp_path / str(number)).touch()
    seen, listed = [], os.scandir

    class Counting:
        def __init__(self, place):
            self.entries = listed(place)

        def __iter__(self):
            return self

        def __next__(self):
            seen.append(next(self.entries))
            return seen[-1]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

        def close(self):
            self.entries.close()

    monkeypatch.setattr(os, "scandir", Counting)
    steps = usage.measure(str(tmp_path))
    next(steps)
    assert len(seen) <= 100
    assert len([*steps]) > 5
    assert len(seen) == 1000
    assert usage.disk(str(tmp_path)) >= 1000 * 1024


def test_nesting_that_cannot_be_measured_is_told(tmp_path):
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for _ in range(450):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.fchdir(here)
        os.close(here)
    with pytest.raises(usage.TooDeep):
        usage.disk(str(tmp_path))


def test_a_watchdog_ends_what_goes_over_its_limit(tree, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    dog = Watchdog(None, 50_000, str(tmp_path), tree)
    assert _kills_of_one_look(dog) == 1
    assert _kills_of_one_look(Watchdog(None, 10 << 20, str(tmp_path), tree)) == 0


def _kills_of_one_look(dog):
    dog.look(time.monotonic())
    while not dog.due(time.monotonic()):
        dog.look(time.monotonic())
    return dog.kills


MOVER = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork():
    print("up", flush=True)
    time.sleep(100)
memory, file = b"x" * (64 << 20), open(sys.argv[1], "ab", buffering=0)
until = time.monotonic() + 60
while time.monotonic() < until:
    file.write(b"x" * 10_000)
    time.sleep(0.01)
    if os.fork():
        os._exit(0)
"""


@pytest.mark.parametrize(("memory", "disk"), [(40 << 20, None), (None, 100_000)])
def test_who_is_another_process_all_the_time_is_ended_all_the_same(tmp_path, monkeypatch, memory, disk):
    """Who can make a look long, by many open files, is not to be gone when it comes to the killing; nor to pass for one
    that sleeps, since none of them lives for long and whoever started them does not count their time."""
    looked = usage.nameless
    monkeypatch.setattr(usage, "nameless", lambda pid: time.sleep(0.1) or looked(pid))
    (tmp_path / "box").mkdir()
    argv = [sys.executable, "-c", MOVER, str(tmp_path / "box" / "file")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            process.stdout.readline()
            until = time.monotonic() + 30
            assert _kills_of_one_look(Watchdog(1 << 30, 1 << 30, str(tmp_path / "box"), process.pid)) == 0
            assert usage.descendants(process.pid)[1:]
            dog = Watchdog(memory, disk, str(tmp_path / "box"), process.pid)
            while usage.descendants(process.pid)[1:]:
                assert time.monotonic() < until, "it goes on"
                dog.look(time.monotonic())
                time.sleep(dog.due(time.monotonic()))
            assert dog.kills
            assert process.poll() is None, "the first is spared"
        finally:
            process.kill()


HEADLESS = """
import ctypes, os, sys, threading
if os.fork():
    os.wait()

def stay(memory, file):
    print("up", flush=True)
    threading.Event().wait(60)

held = b"x" * (64 << 20), os.memfd_create("held")
os.write(held[1], b"x" * (16 << 20))
threading.Thread(target=stay, args=held).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def test_a_process_whose_first_thread_has_ended_is_measured_by_the_others(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            process.stdout.readline()
            [headless] = usage.children(process.pid)
            eventually(lambda: _state(headless) == "Z", "its first thread has ended")
            assert usage.memory([headless]) > 64 << 20
            assert usage.load(headless)[1] > 64 << 20
            dog = Watchdog(40 << 20, None, str(tmp_path), process.pid)
            # Twice, where it is still ending when files are counted, too.
            assert _kills_of_one_look(dog) in (1, 2)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
