"""Nothing of the host shows: no environment, descriptors, processes, sockets, shared memory or keys."""

import contextlib
import os
import socket
import struct
import subprocess
import threading

import pytest
from tests.escape.prelude import ctypes, errno, failed, libc, syscall

PLACES = ["try_cell", "try_command"]


def environment():
    """Everything that can be read of anybody's environment."""
    texts = [repr(dict(os.environ))]
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                texts.append(file.read().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


def command_lines():
    texts = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                texts.append(file.read().decode(errors="replace"))
    return "\n".join(texts)


def descriptors():
    """What is open, without the listing itself."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return found


def open_one_and_list():
    fd = os.open("/etc/passwd", os.O_RDONLY)
    return os.readlink(f"/proc/self/fd/{fd}")


def processes():
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def ask_for(pid):
    os.kill(pid, 0)


def follow_descriptors(pid):
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        for look in (os.readlink, os.stat, lambda path: os.open(path, os.O_RDONLY)):
            try:
                look(f"/proc/{pid}/fd/{name}")
                found.add("ok")
            except OSError as error:
                found.add(errno.errorcode[error.errno])
    return sorted(found)


def reach(pid):
    """Every way to another process's memory and descriptors."""
    tried = {}
    for name in ("mem", "environ", "maps", "root", "cwd", "exe", "fd", "ns/mnt", "stack", "syscall"):
        path = f"/proc/{pid}/{name}"
        try:
            if name in ("root", "cwd", "exe", "ns/mnt"):
                os.readlink(path)
            elif name == "fd":
                os.listdir(path)
            else:
                with open(path, "rb") as file:
                    file.read(1)
            tried[name] = "ok"
        except OSError as error:
            tried[name] = errno.errorcode[error.errno]
    return tried


def attach(pid):
    if libc.ptrace(16, pid, None, None) != 0:
        raise failed("ptrace")


def take_descriptor(pid):
    pidfd = os.pidfd_open(pid)
    syscall(438, pidfd, 0, 0)


def read_memory(pid):
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("PN", ctypes.addressof(buffer), 8)
    remote = struct.pack("PN", ctypes.addressof(buffer), 8)
    syscall((310, 270), pid, local, 1, remote, 1, 0)


def connect_unix(name):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(name)
        return sock.recv(64).decode()


def own_abstract_socket():
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("\0inside")
        server.listen()
        client.connect("\0inside")


def find_shared_memory(key):
    if libc.shmget(key, 0, 0) < 0:
        raise failed("shmget")


def make_shared_memory(key):
    number = libc.shmget(key, 4096, 0o1666)
    if number < 0:
        raise failed("shmget")
    libc.shmctl(number, 0, None)


def open_queue(name):
    syscall((240, 180), name.encode(), 0, 0, None)


def listen_to_netlink(protocol):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as sock:
        sock.bind((0, 1))


def add_key():
    syscall((248, 217), b"user", b"probe", b"x", 1, -3)


def host_facts():
    return [os.uname().nodename, socket.gethostname(), open("/etc/hostname").read().strip()]


def mounts():
    with open("/proc/self/mounts") as file:
        return file.read()


def groups():
    with open("/proc/self/cgroup") as file:
        return [line.rstrip("\n").split(":", 2)[2] for line in file]


@pytest.mark.parametrize("place", PLACES)
def test_the_environment_of_the_maker_does_not_show(maker, place):
    assert "secret-of-the-maker" in maker.try_outside(environment)
    inside = getattr(maker.box, place)(environment)
    assert "HOME" in inside
    assert "secret-of-the-maker" not in inside
    assert "ATOLL" not in inside
    assert maker.home not in inside


def test_what_the_caller_puts_into_the_environment_does_show(maker):
    with maker.create(env={"GIVEN": "by-the-caller"}) as box:
        assert "by-the-caller" in box.try_cell(environment)


def test_command_lines_inside_name_no_path_of_the_state(maker):
    shown = maker.box.try_cell(command_lines)
    assert maker.state not in shown
    assert maker.home not in shown


@pytest.mark.parametrize("place", PLACES)
def test_no_descriptor_is_inherited(maker, place):
    # One of its own: in the box that all tests share, another test may have left something open.
    with maker.create() as box:
        found = getattr(box, place)(descriptors)
        assert {"0", "1", "2"} <= set(found)
        for name, target in found.items():
            assert target.startswith(("pipe:", "socket:", "/dev/null")), (name, target)
        # A context also has its guest's ends of its two pipes, the socket to it, and a pipe for its answers.
        assert len(found) <= (8 if place == "try_cell" else 4)
        assert len({target for target in found.values() if target.startswith("pipe:")}) <= 3
        assert getattr(box, place)(open_one_and_list) == "/etc/passwd"


def test_no_process_of_the_host_shows_or_can_be_signalled(maker):
    seen = maker.box.try_command(processes)
    assert 1 in seen
    assert len(seen) <= 5
    assert os.getpid() not in seen or os.getpid() < 50
    worker = maker._process.pid
    assert maker.try_outside(ask_for, worker) == "ok"
    assert maker.box.try_cell(ask_for, worker) == "ESRCH" or worker in seen


@pytest.mark.parametrize("place", PLACES)
def test_the_guests_own_process_is_closed_to_the_code_it_runs(maker, place):
    tried = getattr(maker.box, place)(reach, 1)
    # Without root the kernel takes them for one user's: descriptors can be counted, and not one of them be followed.
    assert tried.pop("fd") in ("EACCES", "EPERM") or getattr(maker.box, place)(follow_descriptors, 1) == ["EACCES"]
    assert set(tried.values()) <= {"EACCES", "EPERM"}, tried
    # EPERM from the filter; without it the missing capability would refuse as well.
    assert getattr(maker.box, place)(attach, 1) == "EPERM"
    assert getattr(maker.box, place)(take_descriptor, 1) == "EPERM"
    assert getattr(maker.box, place)(read_memory, 1) == "EPERM"


def test_code_may_look_at_itself(maker):
    tried = maker.box.try_command(reach, "self")
    assert {tried["mem"], tried["environ"], tried["maps"], tried["fd"]} <= {"ok", "EIO"}


def test_the_first_process_shrugs_off_signals_from_inside(maker):
    with maker.create() as box:
        for number in ("KILL", "STOP", "TERM", "INT", "SEGV", "QUIT"):
            box.run(f"kill -{number} 1", timeout=10)
        assert box.run("echo alive")["stdout"] == "alive\n"


@contextlib.contextmanager
def greeting(name):
    """A listening Unix socket of the host that says hello."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        if not name.startswith("\0"):
            os.chmod(name, 0o777)
        server.listen()

        def serve():
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                client.sendall(b"hello")
                client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def test_an_abstract_socket_of_the_host_cannot_be_reached(maker):
    with greeting("\0atoll-escape-test"):
        assert maker.try_outside(connect_unix, "\0atoll-escape-test") == "hello"
        assert maker.box.try_cell(connect_unix, "\0atoll-escape-test") in ("ECONNREFUSED", "EPERM")
    assert maker.box.try_cell(own_abstract_socket) == "ok"


def test_a_unix_socket_of_the_host_cannot_be_reached(maker):
    path = f"{maker.home}/host.sock"
    with greeting(path):
        assert maker.try_outside(connect_unix, path) == "hello"
        for road in (path, f"/proc/self/root{path}", f"/.host{path}"):
            assert maker.box.try_cell(connect_unix, road) in ("ENOENT", "EACCES")


def test_shared_memory_of_the_host_cannot_be_found(maker):
    key = 0x5A5A0000 | os.getpid() & 0xFFFF
    number = libc.shmget(key, 4096, 0o1666)
    assert number >= 0
    try:
        assert maker.try_outside(find_shared_memory, key) == "ok"
        # Where memory is polled there is none of this kind at all: no poll would see it.
        found = maker.box.try_cell(find_shared_memory, key)
        assert found in ("ENOENT", "ENOSYS")
    finally:
        libc.shmctl(number, 0, None)
    assert maker.box.try_cell(make_shared_memory, key) == ("ok" if found == "ENOENT" else "ENOSYS")


def test_a_message_queue_of_the_host_cannot_be_opened(maker):
    name = b"/atoll-escape-%d" % os.getpid()
    queue = libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o666, None)
    if queue < 0:
        pytest.skip("this kernel has no message queues")
    try:
        assert maker.try_outside(open_queue, name[1:].decode()) == "ok"
        assert maker.box.try_cell(open_queue, name[1:].decode()) == "ENOENT"
    finally:
        libc.mq_unlink(name)


def test_events_of_the_hosts_devices_are_not_told(maker):
    kobject_uevent = 15
    assert maker.try_outside(listen_to_netlink, kobject_uevent) == "ok"
    assert maker.box.try_cell(listen_to_netlink, kobject_uevent) == "EPROTONOSUPPORT"
    # Routes and interfaces, of its own network.
    assert maker.box.try_cell(listen_to_netlink, 0) == "ok"


def test_keys_of_the_maker_do_not_show(maker):
    def list_keys(add):
        if add:
            syscall((248, 217), b"user", b"of-the-host", b"x", 1, -4)
        with open("/proc/keys") as file:
            return "of-the-host" in file.read()

    assert maker.try_outside(list_keys, True) is True
    assert maker.box.try_cell(list_keys, False) is False
    assert maker.box.try_cell(add_key) == "EPERM"
    assert maker.try_outside(add_key) == "ok"


def test_the_name_of_the_host_does_not_show(maker):
    assert set(maker.box.try_cell(host_facts)) == {"atoll"}
    assert subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip() != "atoll"


def test_the_control_groups_of_the_host_do_not_show(maker):
    assert set(maker.box.try_cell(groups)) == {"/"}
    kinds = {line.split()[2] for line in maker.box.try_cell(mounts).splitlines()}
    assert "proc" in kinds
    assert not {"cgroup", "cgroup2"} & kinds
