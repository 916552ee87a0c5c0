"""Memory, processes, disk, output and time are bounded for the whole tree, and nobody else notices."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import struct
import time

import pytest
from tests.escape import residue
from tests.escape.harness import Refused, eventually, script

from atoll.engine import usage

MEGABYTE = 1 << 20
KILLED = 137
# A limit that is only looked at now and then needs time to look. What is killed does not wait so long.
WAIT = 20


@pytest.fixture(autouse=True)
def neighbour(maker):
    """Another sandbox of the same maker, and the host, must come through unharmed."""
    assert maker.box.run("echo before")["stdout"] == "before\n"
    yield maker.box
    done = maker.box.run("echo after")
    assert (done["exit_code"], done["stdout"]) == (0, "after\n")


def fork_until_refused(most):
    """How many children one may have; they are killed afterwards."""
    children = []
    try:
        for _ in range(most):
            pid = os.fork()
            if pid == 0:
                time.sleep(100)
                os._exit(0)
            children.append(pid)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(children)


def allocate(size):
    """Take memory and write to all of it."""
    try:
        taken = bytearray(size)
    except MemoryError:
        raise OSError(errno.ENOMEM, "MemoryError") from None
    for at in range(0, size, 4096):
        taken[at] = 1
    return len(taken)


def allocate_in_children(count, size, wait):
    """How many of many children got their share."""
    children = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                taken = bytearray(size)
                for at in range(0, size, 4096):
                    taken[at] = 1
                time.sleep(wait)
            except MemoryError:
                os._exit(1)
            os._exit(0)
        children.append(pid)
    return sum(os.waitpid(pid, 0)[1] == 0 for pid in children)


def fill_unnamed_memory(count, size, wait):
    """Memory that belongs to descriptors, and so to no process's own."""
    held = []
    for _ in range(count):
        fd = os.memfd_create("hidden")
        for _ in range(0, size, 1 << 20):
            os.write(fd, bytes(1 << 20))
        held.append(fd)
    time.sleep(wait)


def fill_shared_memory(size):
    with open("/dev/shm/large", "wb", buffering=0) as file:
        file.writelines(bytes(1 << 20) for _ in range(0, size, 1 << 20))


def write_files(count, size, wait):
    for number in range(count):
        with open(f"/workspace/file{number}", "wb", buffering=0) as file:
            for _ in range(0, size, 1 << 20):
                if file.write(os.urandom(1 << 20)) != 1 << 20:
                    raise OSError(errno.ENOSPC, "a short write")
    time.sleep(wait)


def write_nameless_files(count, size, wait):
    held = []
    for number in range(count):
        path = f"/workspace/file{number}"
        fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.unlink(path)
        for _ in range(0, size, 1 << 20):
            if os.write(fd, os.urandom(1 << 20)) != 1 << 20:
                raise OSError(errno.ENOSPC, "a short write")
        held.append(fd)
    time.sleep(wait)


def make_empty_files(count, wait):
    for number in range(count):
        os.close(os.open(f"/workspace/empty{number}", os.O_CREAT | os.O_WRONLY))
    time.sleep(wait)


def make_sparse_file(size):
    with open("/workspace/sparse", "wb") as file:
        file.truncate(size)


def connect_unheard(count, wait):
    listener, held = socket.socket(), 0
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    for _ in range(count):
        with socket.socket() as client:
            client.connect(listener.getsockname())
            client.setblocking(False)
            try:
                while held < count << 20:
                    held += client.send(bytes(1 << 16))
            except BlockingIOError:
                pass
    time.sleep(wait)
    return held


def begin_datagrams(count, wait):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.sendto(bytes(60_000), socket.MSG_MORE, ("127.0.0.1", 9))
    time.sleep(wait)
    return count * 60_000


def ask_without_listening(count, wait):
    question = struct.pack("=IHHII", 30_016, 0x7FF0, 5, 1, 0) + bytes(30_000)
    sockets = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        try:
            for _ in range(60):
                each.send(question, socket.MSG_DONTWAIT)
        except OSError:
            pass
    time.sleep(wait)
    return count


def outcome_of(box, attempt, *arguments, **keywords):
    """How an attempt ends that may be killed: its outcome, "killed", or the name of the error."""
    try:
        done = box.run(["python3", "-I", "-"], stdin=script(attempt, *arguments), **keywords)
    except Refused as refusal:
        return refusal.type
    if done["exit_code"] == KILLED:
        return "killed"
    return json.loads(done["stdout"].strip().splitlines()[-1]) if done["stdout"].strip() else done["stderr"]


def test_the_number_of_processes_is_bounded(maker):
    with maker.create(resources={"pids": 40}) as box:
        assert 20 <= box.try_command(fork_until_refused, 200) < 40
        # The neighbour has its own count, though it may be the same user's.
        assert box.try_command(fork_until_refused, 20) == 20
    with maker.create(resources={"pids": 200}) as box:
        assert box.try_command(fork_until_refused, 100) == 100


def test_a_fork_bomb_ends_with_its_command(maker):
    with maker.create(resources={"pids": 60}) as box:
        before = len(residue.descendants(box.handle["pid"]))
        running = box.begin("run", ["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"], timeout=2)
        eventually(lambda: len(residue.descendants(box.handle["pid"])) > before + 20, "it has gone off")
        assert len(residue.descendants(box.handle["pid"])) <= 62
        assert maker.box.run("echo meanwhile")["stdout"] == "meanwhile\n"
        done = running.get()
        assert done["timed_out"] or done["exit_code"] != 0
        # What it has left in the background lasts no longer than the sandbox.
        processes = residue.descendants(box.handle["pid"])
    eventually(lambda: not any(map(residue.is_alive, processes)), "everything is dead")


def test_sixty_four_gigabytes_are_refused(maker):
    with maker.create(resources={"memory": "128M"}) as box:
        assert outcome_of(box, allocate, 64 << 30) in ("ENOMEM", "killed")
        assert box.run("echo alive")["stdout"] == "alive\n"
        assert outcome_of(box, allocate, 8 * MEGABYTE) == 8 * MEGABYTE


def test_memory_is_bounded_for_the_whole_tree(maker):
    with maker.create(resources={"memory": "160M"}) as box:
        share = 40 * MEGABYTE
        ended = outcome_of(box, allocate_in_children, 12, share, 1.5)
        assert ended in ("killed", "SandboxGone") or ended <= 4, ended
    with maker.create(resources={"memory": "1G"}) as box:
        assert outcome_of(box, allocate_in_children, 6, share, 0) == 6


def test_memory_of_descriptors_is_bounded(maker):
    with maker.create(resources={"memory": "128M"}) as box:
        assert outcome_of(box, fill_unnamed_memory, 20, 32 * MEGABYTE, WAIT) in (
            "killed",
            "SandboxGone",
            "ENOSPC",
            "ENOMEM",
        )
    with maker.create(resources={"memory": "512M"}) as box:
        assert outcome_of(box, fill_unnamed_memory, 2, 32 * MEGABYTE, 0) == "ok"


@pytest.mark.parametrize(
    ("attempt", "few", "many"),
    [(connect_unheard, 8, 300), (begin_datagrams, 100, 2500), (ask_without_listening, 8, 300)],
)
def test_memory_that_waits_in_sockets_is_bounded(maker, attempt, few, many):
    """The kernel counts it for nobody: 96 MB of memory were a gigabyte and a half so, in one listening socket."""
    with maker.create(resources={"memory": 256 << 20}) as box:
        assert box.try_cell(attempt, few, 4) > 0, "the control"
        done = box.code(script(attempt, many, 20))
        assert "SIGKILL" in done["error"]["value"], done
        assert box.run("echo alive")["stdout"] == "alive\n"


def test_shared_memory_is_bounded(maker):
    with maker.create(resources={"memory": "128M"}) as box:
        assert outcome_of(box, fill_shared_memory, 1 << 30) in ("killed", "SandboxGone", "ENOSPC", "ENOMEM")
    with maker.create(resources={"memory": "512M"}) as box:
        assert outcome_of(box, fill_shared_memory, 32 * MEGABYTE) == "ok"


DISK = {"disk": "24M"}
FULL = ("ENOSPC", "EFBIG", "killed", "SandboxGone")


def test_one_file_cannot_outgrow_the_disk(maker):
    with maker.create(resources=DISK) as box:
        done = box.run("yes > file", timeout=30)
        assert done["exit_code"] not in (0, 124)
        assert box.call("files.info", "/workspace/file")["size"] <= 24 * MEGABYTE
        assert box.run("rm file && echo again > file && cat file")["stdout"] == "again\n"


def test_many_files_cannot_outgrow_the_disk(maker):
    free = shutil.disk_usage(maker.home).free
    with maker.create(resources=DISK) as box:
        assert outcome_of(box, write_files, 40, 4 * MEGABYTE, WAIT) in FULL
        assert shutil.disk_usage(maker.home).free > free - 1024 * MEGABYTE
    with maker.create(resources={"disk": "64M"}) as box:
        assert outcome_of(box, write_files, 4, 4 * MEGABYTE, 0) == "ok"


def test_files_without_a_name_count_as_well(maker):
    with maker.create(resources=DISK) as box:
        assert outcome_of(box, write_nameless_files, 40, 4 * MEGABYTE, WAIT) in FULL


def test_the_number_of_files_is_bounded(maker):
    with maker.create(resources={"disk": "8M"}) as box:
        assert outcome_of(box, make_empty_files, 12_000, WAIT) in FULL
    with maker.create(resources={"disk": "8M"}) as box:
        assert outcome_of(box, make_empty_files, 200, 0) == "ok"


def test_a_sparse_file_cannot_be_larger_than_the_disk(maker):
    with maker.create(resources=DISK) as box:
        assert outcome_of(box, make_sparse_file, 10 << 30) in ("EFBIG", "ENOSPC")
        assert outcome_of(box, make_sparse_file, 8 * MEGABYTE) == "ok"


def test_an_upload_larger_than_the_disk_is_refused(maker):
    large = f"{maker.home}/large"
    with open(large, "wb") as file:
        file.truncate(64 * MEGABYTE)
    os.chmod(large, 0o644)
    with maker.create(resources=DISK) as box:
        with pytest.raises(Refused) as caught:
            box.call("files.upload", large, "/workspace/large")
        assert caught.value.type in ("DiskFull", "SandboxError", "FileError")
        assert box.run("echo alive")["stdout"] == "alive\n"
    os.unlink(large)


@pytest.mark.parametrize("command", ["yes", "yes >&2", "cat /dev/zero", "while true; do echo x; echo y >&2; done"])
def test_endless_output_is_cut_and_the_command_ended(maker, command):
    # Little enough that each of them comes to it in that time, however slow the machine is.
    done = maker.box.run(command, timeout=1.0, max_output=1000)
    assert done["timed_out"]
    assert done["truncated"]
    assert len(done["stdout"]) + len(done["stderr"]) <= 2000
    assert maker.box.run("echo whole", max_output=1000)["truncated"] is False


def test_endless_printing_in_a_cell_is_cut_and_the_cell_ended(maker):
    done = maker.box.code("while True: print('x' * 100)", timeout=0.5, max_output=100_000)
    assert done["timed_out"]
    assert done["truncated"]
    assert len(done["stdout"]) <= 200_000
    assert maker.box.code("print('fine')")["stdout"] == "fine\n"


HIDING = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3): os.close(fd)
            time.sleep(500)
        os._exit(0)
os.system("setsid nohup sleep 501 > /dev/null 2>&1 &")
print("started", flush=True)
time.sleep(502)
"""


def test_a_timeout_kills_the_whole_tree(maker):
    with maker.create() as box:
        before = set(residue.descendants(box.handle["pid"]))
        running = box.begin("run", ["python3", "-c", HIDING], timeout=2)

        def grown():
            return [each for each in residue.descendants(box.handle["pid"]) if each not in before]

        eventually(lambda: len(grown()) >= 5, "it has hidden its children")
        hidden = grown()
        assert running.get()["timed_out"]
        assert not any(map(residue.is_alive, hidden))
        assert box.run("echo alive")["stdout"] == "alive\n"


def test_a_cell_out_of_time_is_ended_with_what_it_started(maker):
    with maker.create() as box:
        box.code("1")
        before = set(residue.descendants(box.handle["pid"]))
        running = box.begin("run_code", "import subprocess; subprocess.run(['sleep', '503'])", timeout=1.5)
        grown = eventually(lambda: [p for p in residue.descendants(box.handle["pid"]) if p not in before], "it runs")
        assert running.get()["timed_out"]
        eventually(lambda: not any(map(residue.is_alive, grown)), "it is dead")


def test_a_loop_that_ignores_interrupts_is_ended_too(maker):
    with maker.create() as box:
        stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        done = box.code(stubborn, timeout=0.5)
        assert done["timed_out"]
        assert done["state_lost"]
        assert box.code("1 + 1")["results"][0]["data"]["text/plain"] == "2"


GOES_ON = """
import ctypes, os, signal, sys, time
kernel, number = ctypes.CDLL(None), ctypes.c_void_p()
when = (ctypes.c_long * 4)(0, 5_000_000, 0, 5_000_000)
what = (ctypes.c_int * 16)(0, 0, signal.SIGCONT)
signal.signal(signal.SIGCONT, lambda *_: None)
assert kernel.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(what), ctypes.byref(number)) == 0
assert kernel.timer_settime(number, 0, ctypes.byref(when), None) == 0
with open("/tmp/up", "w"):
    pass
while True:
    time.sleep(0.01)
"""


def test_who_has_the_kernel_send_it_signals_to_go_on_does_not_go_on_in_a_pause(maker):
    if maker.box.info["limits"]["memory"] == "kernel":
        pytest.skip("a control group freezes it")
    with maker.create(resources={"pids": 50}) as box:
        first = usage.descendants(box.handle["pid"])
        box.run("setsid sleep 100 >/tmp/out 2>&1 & echo $! >/tmp/plain")
        box.run("cat >/tmp/goes_on.py", stdin=GOES_ON)
        wait = "for i in $(seq 500); do [ -e /tmp/up ] && exit; sleep 0.02; done; cat /tmp/out; exit 1"
        done = box.run(f"setsid python3 -I /tmp/goes_on.py >/tmp/out 2>&1 & {wait}")
        assert done["exit_code"] == 0, done
        inside = [pid for pid in usage.descendants(box.handle["pid"]) if pid not in first]
        assert len(inside) >= 2
        assert any(map(usage.goes_on, inside)), "the control"
        box.call("pause")
        until = time.monotonic() + WAIT
        still = 0
        while still < 50:
            still = 0 if any(map(usage.goes_on, inside)) else still + 1
            assert time.monotonic() < until
            time.sleep(0.05)
        box.call("resume")
        assert box.run("kill -0 $(cat /tmp/plain) && echo there")["stdout"] == "there\n"


def test_what_cannot_be_held_is_declared_and_strict_refuses_it(maker):
    limits = maker.box.info["limits"]
    if maker.name == "root":
        kernel = dict.fromkeys(("memory", "pids", "disk"), "kernel")
        assert limits == {**kernel, "cpu": "none", "sockets": "polled"}
        maker.create(strict=True).destroy()
        return
    assert limits["sockets"] == "polled"
    polled = {name for name, how in limits.items() if how == "polled"} - {"sockets"}
    if not polled:
        pytest.skip("this user's limits are all held by the kernel")
    with pytest.raises(Refused) as caught:
        maker.create(strict=True)
    assert caught.value.type == "Unsupported"
    assert all(name in caught.value.message for name in polled)
    with pytest.raises(Refused) as caught:
        maker.create(resources={"cpu": 0.5})
    assert caught.value.type == "Unsupported"


def test_hostile_load_in_many_sandboxes_at_once_leaves_the_others_alone(maker):
    boxes = [maker.create(resources={"pids": 50, "memory": "128M", "disk": "24M"}) for _ in range(3)]
    hog = "python3 -c 'x = [bytearray(1 << 20) for _ in range(10**6)]'"
    loads = ["while true; do sleep 1 & done", "yes > file; yes", hog]
    pending = [box.begin("run", load, timeout=1.5, max_output=10_000) for box, load in zip(boxes, loads, strict=True)]
    for _ in range(10):
        assert maker.box.run("echo fine", timeout=20)["stdout"] == "fine\n"
    for each in pending:
        # How the hostile ones fare is for the other tests.
        with contextlib.suppress(Refused):
            each.get()
    for box in boxes:
        box.destroy()
