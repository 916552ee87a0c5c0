"""Whatever a command does to hide its children, they die with it, and nothing else does."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.guest.rawclient import Guest, eventually
from tests.guest.support import alive

DOUBLE_FORK = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        os.rename(sys.argv[1], sys.argv[2])
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
SETSID = "setsid env -i /bin/sh -c 'echo $$ > tmp; mv tmp pid; exec sleep 60' & exec sleep 60"
STOPPED = "/bin/sh -c 'echo $$ > tmp; mv tmp pid; kill -STOP $$; sleep 60' & exec sleep 60"
IGNORING = "trap '' TERM INT HUP; (trap '' TERM INT HUP; sh -c 'echo $$ > tmp; mv tmp pid; exec sleep 60') & sleep 60"
HIDERS = {
    "double fork": [sys.executable, "-c", DOUBLE_FORK, "tmp", "pid"],
    "double fork with no environment": ["env", "-i", sys.executable, "-c", DOUBLE_FORK, "tmp", "pid"],
    "a session of its own": ["/bin/sh", "-c", SETSID],
    "stopped": ["/bin/sh", "-c", STOPPED],
    "ignoring signals": ["/bin/sh", "-c", IGNORING],
}


def hidden(guest):
    path = os.path.join(guest.workspace, "pid")
    eventually(lambda: os.path.exists(path))
    with open(path) as file:
        pid = int(file.read())
    assert alive(pid)
    return pid


@pytest.mark.parametrize("argv", HIDERS.values(), ids=list(HIDERS))
def test_closing_the_channel_kills_the_whole_tree(guest, client, argv):
    channel = client.open("exec", argv=argv)
    pid = client.event(channel)["pid"]
    other = hidden(guest)
    client.cancel(channel)
    assert client.finish(channel).ok["exit_code"] == 137
    assert not alive(other)
    assert not alive(pid)


@pytest.mark.parametrize("argv", HIDERS.values(), ids=list(HIDERS))
def test_a_timeout_kills_the_whole_tree_before_it_is_told(guest, client, argv):
    ended = client.run(*argv, timeout=1)
    assert ended.ok["timed_out"] is True
    assert not alive(int(open_text(guest, "pid")))


HEADLESS = """
import ctypes, os, sys, threading
threading.Thread(target=threading.Event().wait, args=(60,)).start()
with open("tmp", "w") as file:
    file.write(str(os.getpid()))
os.rename("tmp", "pid")
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def test_a_process_whose_first_thread_has_ended_is_killed_as_any_other(guest, client):
    """The kernel calls it a zombie, while its other threads go on."""
    channel = client.open("exec", argv=[sys.executable, "-c", HEADLESS])
    client.event(channel)
    eventually(lambda: os.path.exists(os.path.join(guest.workspace, "pid")))
    pid = int(open_text(guest, "pid"))
    eventually(lambda: not alive(pid))
    assert len(os.listdir(f"/proc/{pid}/task")) == 2, "the control"
    assert [each["pid"] for each in client.do("processes").ok["processes"]] == [pid]
    client.cancel(channel)
    assert client.finish(channel).ok["exit_code"] == 137
    assert not os.path.exists(f"/proc/{pid}")


def open_text(guest, name):
    with open(os.path.join(guest.workspace, name)) as file:
        return file.read()


def test_a_client_that_disconnects_takes_its_commands_with_it(guest):
    client = guest.connect()
    client.open("exec", argv=HIDERS["double fork"])
    other = hidden(guest)
    client.close()
    eventually(lambda: not alive(other))


def test_the_end_of_the_keeper_ends_everything(tmp_path):
    guest = Guest(tmp_path)
    client = guest.connect()
    client.open("exec", argv=HIDERS["double fork"], hold=True)
    client.code("import subprocess; p = subprocess.Popen(['sleep', '60'])")
    code = client.code("import os; (os.getpid(), p.pid)")
    context, below = eval(code.events[0]["result"]["text/plain"])
    other = hidden(guest)
    assert alive(context)
    assert alive(below)
    guest.close()
    assert not alive(other)
    assert not alive(context)
    assert not alive(below)
    client.close()


def test_a_sigterm_ends_a_guest_that_is_not_the_first_process_and_all_it_has_started(tmp_path):
    guest = Guest(tmp_path)
    client = guest.connect()
    client.open("exec", argv=HIDERS["double fork"])
    other = hidden(guest)
    guest.process.send_signal(signal.SIGTERM)
    guest.process.wait(30)
    assert not alive(other)
    guest.close()
    client.close()


def test_nothing_else_is_killed(tmp_path, guest, client):
    """Neither a process outside, nor another guest's, nor another command, nor what an earlier one has left."""
    outside = subprocess.Popen(["sleep", "60"])
    second = Guest(tmp_path / "second")
    others = second.connect()
    theirs = others.open("exec", argv=["sleep", "60"])
    others_pid = others.event(theirs)["pid"]
    left = int(client.run("/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!").stdout)
    neighbour = client.open("exec", argv=["sleep", "60"])
    neighbour_pid = client.event(neighbour)["pid"]
    doomed = client.open("exec", argv=["/bin/sh", "-c", "setsid sleep 60 & sleep 60"])
    client.event(doomed)
    client.cancel(doomed)
    assert client.finish(doomed).ok["exit_code"] == 137
    for pid in (outside.pid, others_pid, left, neighbour_pid):
        assert alive(pid)
    os.kill(left, signal.SIGKILL)
    outside.kill()
    outside.wait()
    others.close()
    second.close()


def test_processes_that_fork_and_exit_all_the_time_are_caught(guest, client):
    """Each lives for a moment only, in a session of its own, and is somebody else when one looks again."""
    runners = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)
            time.sleep(0.002)
open("running", "w").close()
time.sleep(60)
"""
    channel = client.open("exec", argv=[sys.executable, "-c", runners])
    client.event(channel)
    eventually(lambda: os.path.exists(os.path.join(guest.workspace, "running")))
    assert client.do("processes").ok["processes"]
    client.cancel(channel)
    client.finish(channel)
    for _ in range(10):
        assert client.do("processes").ok["processes"] == []


def test_a_kill_does_not_wait_for_the_client_to_read(guest, client):
    channel = client.open("exec", argv=["yes"], timeout=0.3)
    pid = client.event(channel)["pid"]
    eventually(lambda: not alive(pid))
    assert client.finish(channel).ok["timed_out"] is True


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("hold", [False, True])
def test_who_was_killed_is_gone_when_that_is_answered(client, tree, hold):
    for _ in range(20):
        channel = client.open("exec", argv=["sleep", "60"], hold=hold)
        pid = client.event(channel)["pid"]
        assert client.do("signal", pid=pid, signal=9, tree=tree).error is None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert client.finish(channel).ok["exit_code"] == 137


def test_a_kill_does_not_wait_for_a_parent_that_does_not_reap(client):
    script = "import os, time\npid = os.fork()\npid or time.sleep(60)\nprint(pid, flush=True)\ntime.sleep(60)"
    channel = client.open("exec", argv=[sys.executable, "-c", script])
    client.event(channel)
    pid = int(client.receive().payload)
    before = time.monotonic()
    assert client.do("signal", pid=pid, signal=9).error is None
    assert time.monotonic() - before < 3
    client.cancel(channel)
    client.finish(channel)
