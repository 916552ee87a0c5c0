"""As the first process of a pid namespace the guest also finds those who forged their mark."""

import os
import subprocess
import sys

import pytest
from tests.guest.rawclient import GUEST, Guest, eventually

FORGER = """
import os, resource, time
mark = resource.getrlimit(10)[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        resource.setrlimit(10, (mark - 1000, mark - 1000))
        open("tmp", "w").write("here")
        os.rename("tmp", "forged")
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
"""Lowers its mark below any that was issued, and has left its parent."""

NESTED = """
import os, resource, time
mark = resource.getrlimit(10)[1]
resource.setrlimit(10, (mark - 5000, mark - 5000))
if os.fork() == 0:
    open("nested", "w").write("here")
    time.sleep(60)
time.sleep(60)
"""

UNSHARE = "unshare --user --map-root-user --pid --fork --mount-proc"


def can_unshare():
    argv = [*UNSHARE.split(), "true"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_unshare(), reason="needs the right to make a namespace")


@pytest.fixture
def first(tmp_path):
    """A guest that is pid 1. The launcher passes the control socket on."""
    wrapper = tmp_path / "first"
    wrapper.write_text(f'#!/bin/sh\nexec {UNSHARE} --kill-child {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    guest = Guest(tmp_path, python=str(wrapper), main=GUEST)
    yield guest
    guest.close()


def test_it_is_the_first_process(first):
    client = first.connect()
    assert client.run("/bin/sh", "-c", "echo $PPID").stdout == b"1\n"
    client.close()


def test_a_forged_mark_does_not_save_a_process(first):
    client = first.connect()
    channel = client.open("exec", argv=[sys.executable, "-c", FORGER])
    eventually(lambda: os.path.exists(os.path.join(first.workspace, "forged")))
    client.cancel(channel)
    client.finish(channel)
    assert client.do("processes").ok["processes"] == []
    client.close()


def test_a_nested_guest_is_not_taken_for_a_forger(first):
    """Its mark is lower than any, but a command of ours is above it."""
    client = first.connect()
    nested = client.open("exec", argv=["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, NESTED])
    eventually(lambda: os.path.exists(os.path.join(first.workspace, "nested")))
    before = len(client.do("processes").ok["processes"])
    doomed = client.open("exec", argv=["sleep", "60"])
    client.cancel(doomed)
    client.finish(doomed)
    assert len(client.do("processes").ok["processes"]) == before == 3
    client.cancel(nested)
    client.finish(nested)
    assert client.do("processes").ok["processes"] == []
    client.close()


def test_orphans_come_to_it_and_are_reaped(first):
    client = first.connect()
    client.run("/bin/sh", "-c", "(sleep 0.05 &); true")
    script = "import os; print([p for p in os.listdir('/proc') if p.isdigit()])"
    eventually(lambda: len(eval(client.run(sys.executable, "-c", script).stdout)) == 2)
    client.close()


def test_signals_from_inside_do_not_end_it(first):
    client = first.connect()
    client.run("/bin/sh", "-c", "kill -TERM 1; kill -INT 1; kill -HUP 1; kill -KILL 1; kill -USR1 1; kill -QUIT 1")
    assert client.run("echo", "still here").stdout == b"still here\n"
    client.close()
