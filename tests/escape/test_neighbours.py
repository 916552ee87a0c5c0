"""Two sandboxes cannot see, signal or reach each other, though the same user made both."""

import os
import socket

import pytest
from tests.escape.prelude import failed, libc


@pytest.fixture(scope="module")
def pair(maker):
    with maker.create() as one, maker.create() as other:
        yield one, other


def processes_named(word):
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if word.encode() in file.read():
                    found.append(int(pid))
    return len(found)


def signal_everybody():
    """SIGKILL to all that can be seen, but for oneself."""
    os.kill(-1, 0)
    with open("/proc/sys/kernel/pid_max") as file:
        limit = min(int(file.read()), 40000)
    reached = 0
    for pid in range(2, limit):
        if pid == os.getpid():
            continue
        try:
            os.kill(pid, 9)
            reached += 1
        except OSError:
            continue
    return reached


def listen(kind, name):
    family = {"tcp": socket.AF_INET, "abstract": socket.AF_UNIX, "file": socket.AF_UNIX}[kind]
    server = socket.socket(family)
    server.bind(name)
    server.listen()
    globals().setdefault("kept", []).append(server)


def connect(kind, name):
    family = {"tcp": socket.AF_INET, "abstract": socket.AF_UNIX, "file": socket.AF_UNIX}[kind]
    with socket.socket(family) as sock:
        sock.settimeout(3)
        sock.connect(name)


def make_shared_memory(key):
    if libc.shmget(key, 4096, 0o1666) < 0:
        raise failed("shmget")


def find_shared_memory(key):
    if libc.shmget(key, 0, 0) < 0:
        raise failed("shmget")


def read(path):
    with open(path) as file:
        return file.read()


def owner_of_files():
    return os.stat("/workspace").st_uid


def test_neither_sees_the_others_processes(pair):
    one, other = pair
    one.run("sleep 4711 & echo", check=True)
    assert one.try_command(processes_named, "4711") >= 1
    assert other.try_cell(processes_named, "4711") == 0


def test_a_signal_to_everybody_stays_at_home(maker):
    with maker.create() as one, maker.create() as other:
        other.run("sleep 4712 & echo", check=True)
        one.run("sleep 4713 & echo", check=True)
        one.try_command(signal_everybody)
        assert one.try_command(processes_named, "4713") == 0
        assert other.try_command(processes_named, "4712") >= 1


@pytest.mark.parametrize("place", ["/workspace", "/tmp", "/home/user", "/dev/shm"])
def test_neither_sees_the_others_files(pair, place):
    one, other = pair
    one.call("files.write", f"{place}/mine.txt", "mine")
    assert one.try_cell(read, f"{place}/mine.txt") == "mine"
    assert other.try_cell(read, f"{place}/mine.txt") == "ENOENT"


@pytest.mark.parametrize(
    ("kind", "name"), [("tcp", ("127.0.0.1", 7777)), ("abstract", "\0mine"), ("file", "/tmp/mine.sock")]
)
def test_neither_reaches_the_others_sockets(pair, kind, name):
    one, other = pair
    assert one.try_cell(listen, kind, name) == "ok"
    assert one.try_command(connect, kind, name) == "ok"
    assert other.try_cell(connect, kind, name) in ("ECONNREFUSED", "ENOENT")


def test_neither_finds_the_others_shared_memory(pair):
    one, other = pair
    if one.info["limits"]["memory"] == "polled":
        # No poll sees this kind of memory, so nobody gets any.
        assert one.try_cell(make_shared_memory, 4242) == "ENOSYS"
        return
    assert one.try_cell(make_shared_memory, 4242) == "ok"
    assert one.try_command(find_shared_memory, 4242) == "ok"
    assert other.try_cell(find_shared_memory, 4242) == "ENOENT"


def test_each_of_roots_has_an_id_of_its_own_on_the_host(root_maker):
    with root_maker.create() as one, root_maker.create() as other:
        ids = {one.handle["uid"], other.handle["uid"], os.getuid()}
        assert len(ids) == 3
        assert min(ids - {0}) >= 1_900_000_000


def test_what_one_draws_at_random_the_other_does_not(pair):
    """All are forked from one process; what it knew must not decide what they draw."""
    one, other = pair

    def draw():
        import random
        import secrets
        import uuid

        return [random.random(), random.getrandbits(64), secrets.token_hex(8), str(uuid.uuid4())]

    first, second = one.try_cell(draw), other.try_cell(draw)
    assert not set(map(str, first)) & set(map(str, second))
