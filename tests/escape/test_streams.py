"""What hostile code sends along a stream to its client beside bytes: descriptors that take long to let go of."""

import contextlib
import os
import subprocess
import sys
import time

import pytest
from tests.escape import worker
from tests.escape.harness import eventually

import atoll
from atoll import ProtocolError, Sandbox, Unresponsive
from atoll.engine import launch

# A socket that waits for so long when it is closed: what it has sent is never taken.
SLOW = """
import array, os, socket, stat, struct
kept = []
def slow(seconds):
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    kept.append((listener, listener.accept()))
    ours.setblocking(False)
    try:
        while True:
            ours.send(bytes(65536))
    except BlockingIOError:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    return ours
def give_away(stream, slow, tell=lambda: None):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slow.fileno()]))]
    try:
        stream.sendmsg([b"x"], rights)
        slow.close()
    finally:
        tell()
        slow.close()
"""
CONTROL = """
import time
ours, theirs = socket.socketpair()
give_away(theirs, slow(2))
began = time.monotonic()
ours.recv(1)
print(time.monotonic() - began)
"""
# When nobody listens, so that who receives it is the last to let go.
ATTEMPT = """
import threading, time
def attack(number):
    ours = slow(30)
    while not os.path.exists("go"):
        time.sleep(0.01)
    give_away(socket.socket(fileno=os.dup(number)), ours, lambda: os.mkdir(f"given-{number}"))
streams = [n for n in range(3, 100) if os.path.exists(f"/proc/self/fd/{n}") and stat.S_ISSOCK(os.fstat(n).st_mode)]
for number in streams:
    threading.Thread(target=attack, args=(number,)).start()
print(len(streams), os.getpid())
"""


def test_the_control_is_that_one_who_receives_it_waits():
    done = subprocess.run([sys.executable, "-c", SLOW + CONTROL], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 1.5


def _attack():
    with Sandbox.create("jail") as sandbox:
        streams, pid = sandbox.run_code(SLOW + ATTEMPT, timeout=5).stdout.split()
        assert int(streams) > 0
        other = Sandbox.connect(sandbox.id)
        other.files.write("go", "")
        # Its guest ends one that sends it such things.
        given = f"[ $(ls -d given-* | wc -l) = {streams} ] || ! kill -0 {pid}"
        eventually(lambda: other.run(given).success, "all are given away")
        began = time.monotonic()
        with contextlib.suppress(ProtocolError, Unresponsive):  # of the byte that went with it
            sandbox.run_code("1", timeout=5)
        assert sandbox.run("echo alive", timeout=5).stdout == "alive\n"
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("kernel", ["this", "older"])
def test_a_client_does_not_wait_for_a_descriptor_that_it_is_sent(kernel, tmp_path, monkeypatch):
    """It would wait in the kernel, in spite of all its time limits, and an event loop with it."""
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(atoll.__file__)))
    try:
        if kernel == "older":
            # As if it could not refuse them: only that nothing lingers helps.
            worker.start_zygote("from atoll.engine import messages; messages._SO_PASSRIGHTS = 9999")
        for _ in range(3):  # it has to be quicker than who receives it
            _attack()
    finally:
        launch.shut_down(str(tmp_path / "home"))
