"""Hostile code behind gVisor tries to get out. Each attempt has a control that shows that it would work elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from atoll import ProtocolError, Sandbox, SandboxError, Snapshots
from atoll.drivers.gvisor_wall import GVisorWall
from atoll.engine import roottree
from atoll.engine.steward import asking
from atoll.engine.steward.lent import Lent
from atoll.home import state_dir

from ..runsc import left_of, needs_runsc
from .harness import eventually, script
from .test_network import NO_WAY, connect, localhost, send_datagram, talk_to_oneself

pytestmark = needs_runsc

CALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    answer = libc.syscall(*words)
    return "worked" if answer >= 0 else os.strerror(ctypes.get_errno())
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("gvisor", lifetime=600, resources={"pids": 24}) as made:
        made.run_code(CALLS)
        yield made


def files_of(sandbox):
    """Its workspace, as its steward sees it."""
    steward = sandbox._core._record.handle.data["pid"]
    return f"/proc/{steward}/root{state_dir()}/gvisor/{sandbox.id}/files/work"


def test_nothing_is_left_of_the_rights_of_its_first_steps(sandbox):
    status = sandbox.run("cat /proc/self/status /proc/1/status").stdout
    assert status.count("CapBnd:\t0000000000000000") == 2
    assert status.count("CapEff:\t0000000000000000") == 2
    assert sandbox.run("id -u").stdout == ("1000\n" if os.geteuid() == 0 else "0\n")


def test_no_mount_is_made_or_taken_away(sandbox):
    assert "tmpfs" in sandbox.run("cat /proc/mounts").stdout
    mount = 'call(165, b"x", b"/workspace", b"tmpfs", 0, b"")'
    unmount = 'call(166, b"/sys/fs/cgroup", 2)'
    assert sandbox.run_code(f"{mount}, {unmount}").text == "('Operation not permitted', 'Operation not permitted')"
    assert sandbox.run_code("call(39) + call(272, 0)").text == "'workedworked'"


def test_the_limit_on_processes_is_out_of_reach(sandbox):
    assert sandbox.run("ls -A /sys/fs/cgroup").stdout == ""
    code = """
import subprocess
started = []
try:
    while len(started) < 100:
        started.append(subprocess.Popen(["sleep", "100"]))
except OSError as error:
    told = error.strerror
for each in started:
    each.kill(), each.wait()
3 < len(started) < 24, told
"""
    assert sandbox.run_code(code).text == "(True, 'Resource temporarily unavailable')"


def test_the_host_s_kernel_is_not_the_one_that_answers(sandbox):
    assert sandbox.run("uname -r").stdout.strip() != os.uname().release
    # bpf, perf_event_open, io_uring_setup, kexec_load, init_module, add_key: what hosts are attacked by.
    numbers = (321, 298, 425, 246, 175, 248)
    answers = sandbox.run_code(f"[call(number, 0, 0, 0, 0, 0) for number in {numbers}]").text
    assert "worked" not in answers
    assert sandbox.run_code("call(39)").text == "'worked'"


def test_its_root_cannot_be_changed(sandbox):
    tree = roottree.build(state_dir())
    before = os.stat(f"{tree}/usr/bin/env")
    for path in ("/usr/bin/env", "/etc/passwd", "/opt/atoll/atoll/guest/server.py", "/usr/local/lib/new"):
        assert not sandbox.run(["sh", "-c", f"echo x >> {path}"]).success
    assert not sandbox.run("chmod 777 /usr/bin/env").success
    assert not sandbox.run("rm /usr/bin/env").success
    assert os.stat(f"{tree}/usr/bin/env") == before
    assert sandbox.run("echo x >> /workspace/new && cat new").stdout == "x\n"


def test_a_directory_that_one_sandbox_has_is_not_in_the_root_of_others():
    with Sandbox.create("gvisor", lifetime=600, workdir="/srv/project") as one:
        assert one.run("echo x > file && pwd && ls /srv").stdout == "/srv/project\nproject\n"
    trees = os.path.dirname(roottree.build(state_dir()))
    assert [os.listdir(f"{trees}/{name}/srv") for name in os.listdir(trees) if name != "alone"] in ([[]], [[], []])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to look into the sandbox's disk")
def test_a_socket_or_pipe_of_the_host_among_its_files_is_of_no_use(sandbox):
    files = files_of(sandbox)
    connect = """
import socket, os
def reach(path):
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
        return "reached"
    except OSError as error:
        return error.strerror
"""
    sandbox.run_code(connect)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{files}/host.sock")
        listener.listen(1)
        os.chmod(f"{files}/host.sock", 0o777)
        os.mkfifo(f"{files}/host.pipe")
        os.chmod(f"{files}/host.pipe", 0o777)
        with open(f"{files}/host.file", "w", encoding="ascii") as file:
            file.write("seen")
        assert sandbox.run("cat host.file").stdout == "seen"
        assert sandbox.run_code("reach('/workspace/host.sock')").text != "'reached'"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    fifo = "os.open('/workspace/host.pipe', os.O_RDWR | os.O_NONBLOCK)"
    assert sandbox.run_code(fifo).error is not None
    own = "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/own'); s.listen(1); reach('/tmp/own')"
    assert sandbox.run_code(own).text == "'reached'"


def test_no_device_is_made_and_no_program_gains_rights(sandbox):
    made = sandbox.run_code("os.mknod('/workspace/memory', 0o20600, os.makedev(1, 1))")
    assert made.error is not None
    assert made.error.name == "PermissionError"
    done = sandbox.run("cp /usr/bin/id own && chmod 4755 own && ./own -u && id -u").stdout.split()
    assert len(set(done)) == 1


def test_whoever_speaks_in_the_guest_s_place_harms_nobody_else(sandbox):
    """The line to the steward is a pipe of the guest's, whom the code inside can look at."""
    with Sandbox.create("gvisor", lifetime=600) as victim:
        noise = """
import os
for name in os.listdir('/proc/1/fd'):
    try:
        fd = os.open('/proc/1/fd/' + name, os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, os.urandom(65536))
    except OSError:
        pass
"""
        with contextlib.suppress(SandboxError, ProtocolError):  # it breaks its own line
            victim.run(["python3", "-c", noise], timeout=10)
    assert sandbox.run("echo unharmed").stdout == "unharmed\n"


def test_what_a_guest_says_of_writers_neither_ends_its_steward_nor_keeps_it_busy(monkeypatch):
    writer = {"pid": 7, "command": "sh", "path": "/workspace/file"}
    odd = [{**writer, "pid": float("inf")}, {**writer, "pid": None}, {}, "text", writer]
    wall = GVisorWall.__new__(GVisorWall)
    wall.job, wall._control = {"places": [["/host", "/workspace", True]]}, socket.socket()
    wall._lent = Lent(wall.job)
    for said, pids in ((odd, [7]), ([writer] * 50_000, [7] * 16), ({"pid": 7}, []), (None, [])):
        monkeypatch.setattr(asking, "ask", lambda *_, said=said: {"writers": said})
        assert [each.pid for each in wall._told_writers()] == pids
    wall._control.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, who could copy a set-uid bit of another user's file")
def test_a_snapshot_takes_no_set_uid_bit_to_a_disk_of_the_host(sandbox):
    """The sandbox's own disk is mounted without; its snapshot lies on the host's."""
    name = "bits-" + os.urandom(4).hex()
    sandbox.run("mkdir bits && cp /usr/bin/id bits/own && chmod 6755 bits/own", check=True)
    assert stat.S_IMODE(os.stat(f"{files_of(sandbox)}/bits/own").st_mode) == 0o6755
    sandbox.snapshot(name)
    try:
        copy = os.stat(f"{state_dir()}/gvisor/.snapshots/{name}/files/work/bits/own")
        assert stat.S_IMODE(copy.st_mode) == 0o755
    finally:
        Snapshots("gvisor").delete(name)


def test_the_line_to_the_steward_is_out_of_reach_of_the_code(sandbox):
    """Its pipes are the guest's, whom the code may look at: but no descriptor of the host's is opened anew."""
    code = """
def opened(number):
    try:
        os.close(os.open(f"/proc/1/fd/{number}", os.O_WRONLY | os.O_NONBLOCK))
        return True
    except OSError:
        return False
lines = {n: os.readlink(f"/proc/1/fd/{n}") for n in os.listdir("/proc/1/fd")}
[sorted({opened(n) for n, to in lines.items() if to.startswith(kind)}) for kind in ("host:", "/dev/null")]
"""
    assert sandbox.run_code(code).text == "[[False], [True]]"
    attach = "call(101, 16, {}, 0, 0)"
    assert sandbox.run_code(attach.format(1)).text != "'worked'"
    child = "import subprocess; child = subprocess.Popen(['sleep', '9']); " + attach.format("child.pid")
    assert sandbox.run_code(child).text == "'worked'"


_ODD = """
import os, socket
os.makedirs("odd/new\\nline")
open("odd/\\x1b[2J", "w").close()
open(b"odd/\\xff\\xfe", "w").close()
os.mkfifo("odd/pipe")
socket.socket(socket.AF_UNIX).bind("odd/socket")
os.symlink("/etc/shadow", "odd/link")
os.symlink("loop", "odd/loop")
with open("odd/hole", "wb") as file:
    file.truncate(64 << 20)
    file.seek(32 << 20)
    file.write(b"in the middle")
os.link("odd/hole", "odd/same")
os.mkdir("odd/closed", 0)
os.chdir("odd")
for _ in range(100):
    os.mkdir("d")
    os.chdir("d")
"""


_LOOK = """
import os
os.chdir("odd")
# Pipes and sockets are in the memory of gVisor's kernel only.
for name in sorted({*os.listdir(".")} - {"pipe", "socket"}):
    found = os.lstat(name)
    print(ascii(name), oct(found.st_mode), found.st_nlink, found.st_size if name in ("hole", "same") else "")
print(os.readlink("link"), os.readlink("loop"), os.path.samefile("hole", "same"))
with open("same", "rb") as file:
    file.seek(32 << 20)
    print(file.read(13))
"""


def test_whatever_hostile_code_leaves_is_copied_as_it_is_and_leads_nowhere():
    with Sandbox.create("gvisor", lifetime=600) as one:
        one.run(["python3", "-c", _ODD], check=True)
        with one.fork() as twin:
            expected = one.run(["python3", "-c", _LOOK], check=True).stdout
            assert all(
                each in expected for each in ("new\\nline", "\\x1b[2J", "\\udcff", "in the middle", "/etc/shadow")
            )
            assert twin.run(["python3", "-c", _LOOK], check=True).stdout == expected
            assert twin.metrics().disk < 20 << 20, "a hole stays one"


def test_a_guest_that_is_stopped_for_ever_keeps_nobody_from_ending_its_sandbox():
    with Sandbox.create("gvisor", lifetime=600) as victim, ThreadPoolExecutor(1) as pool:
        other = Sandbox.connect(victim.id)
        victim.start("sleep 0.1; kill -STOP 1")

        def unheard():
            asked = pool.submit(other.run, "true", timeout=5)
            with contextlib.suppress(TimeoutError):
                asked.result(timeout=1)
            return None if asked.done() else asked

        waiting = eventually(unheard, "the guest stands still")
        began = time.monotonic()
        assert victim.refresh().status == "running"
        victim.set_lifetime(300)
        victim.metrics()
        victim.destroy()
        assert time.monotonic() - began < 10
        with pytest.raises(SandboxError):
            waiting.result(timeout=20)
    assert left_of(victim) == []


@pytest.mark.parametrize(("family", "found"), [(socket.AF_INET, ["127.0.0.1"]), (socket.AF_INET6, ["::1"])])
def test_localhost_is_found_by_family_by_an_address_that_leads_nowhere(sandbox, family, found):
    assert _tried(sandbox, localhost, family) == found
    assert _tried(sandbox, talk_to_oneself, "192.0.0.8") == "ok"
    for address in ("192.0.0.9", "192.0.2.1", "100:0:0:1::9"):
        assert _tried(sandbox, connect, address, 9) in NO_WAY
        assert _tried(sandbox, send_datagram, address, 9) in NO_WAY


def _tried(sandbox, attempt, *arguments):
    return json.loads(sandbox.run_code(script(attempt, *arguments)).stdout)
