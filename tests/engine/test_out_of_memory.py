"""A sandbox whose processes fill its memory loses some of them, and nothing else."""

from __future__ import annotations

import os

import pytest

from atoll.guest.victims import Victims
from atoll.sync import Sandbox

# The guest is its usual self as soon as it runs again, which may be after the command does.
_SCORE = """
cat /proc/self/oom_score_adj
while [ "$(cat /proc/1/oom_score_adj)" = 1000 ]; do sleep 0.01; done
"""
# Each small, together more than there is: by size alone the guest would be the first to go.
_FILL = """
import os, time
for _ in range(200):
    if os.fork() == 0:
        kept = b"x" * (1 << 20)
        time.sleep(300)
print("some died" if os.waitpid(-1, os.WNOHANG)[0] else "none died")
"""


@pytest.fixture
def box():
    with Sandbox.create(resources={"memory": "96M"}) as made:
        yield made


def test_many_small_processes_that_fill_the_memory_do_not_end_the_sandbox(box):
    if box.info.limits["memory"] != "kernel":
        pytest.skip("without a control group no kernel kills anything: the keeper polls")
    box.run("echo precious > kept", check=True)
    filled = box.run(["python3", "-c", _FILL], timeout=30)
    assert filled.exit_code == 137 or filled.stdout == "some died\n"
    assert box.files.read("kept") == "precious\n"


def test_what_is_started_goes_before_the_guest(box):
    started = box.run(_SCORE, timeout=30)
    assert (started.stdout, started.timed_out) == ("1000\n", False)
    cell = box.run_code("print(open('/proc/self/oom_score_adj').read())")
    assert cell.stdout.split() == ["1000"]


def test_a_guest_that_cannot_say_starts_processes_all_the_same():
    victims = Victims(None)
    with victims:
        pass
    pid = victims.fork()
    if pid == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_after_a_start_the_guest_is_as_before():
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as score:
        before = score.read()
        victims = Victims(score.fileno())
        with victims:
            assert os.pread(score.fileno(), 16, 0) == b"1000\n"
        assert os.pread(score.fileno(), 16, 0) == before
