"""network="all" reaches a test host in a network namespace of our own, and neither metadata nor neighbours.

The test host has an ordinary address and the one where clouds keep their credentials; the host routes both to it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import textwrap
import time

import pytest
from tests.escape import residue
from tests.escape.harness import USER, Maker, Refused, eventually

NAME = "at-testhost"
HOST, THERE, METADATA = "198.51.100.1", "198.51.100.2", "169.254.169.254"
PORT = 8123
NO_WAY = {"ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "timeout", "ETIMEDOUT"}
_SERVER = textwrap.dedent(
    f"""
    import socket
    server = socket.create_server(("0.0.0.0", {PORT}))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print("ready", flush=True)
    while True:
        client, peer = server.accept()
        client.sendall(peer[0].encode())
        client.close()
    """
)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to make a network of its own")


def ip(*words, check=True):
    return subprocess.run(["/usr/sbin/ip", *words], capture_output=True, text=True, check=check)


@contextlib.contextmanager
def machine():
    ip("netns", "add", NAME)
    try:
        ip("link", "add", "at-test0", "type", "veth", "peer", "name", "eth0", "netns", NAME)
        ip("addr", "add", f"{HOST}/24", "dev", "at-test0")
        ip("link", "set", "at-test0", "up")
        for words in (
            ("addr", "add", f"{THERE}/24", "dev", "eth0"),
            ("addr", "add", f"{METADATA}/32", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", NAME, *words)
        ip("route", "add", METADATA, "dev", "at-test0")
        argv = ["/usr/sbin/ip", "netns", "exec", NAME, sys.executable, "-S", "-c", _SERVER]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout.readline() == "ready\n"
            try:
                yield
            finally:
                server.kill()
    finally:
        ip("netns", "del", NAME)
        eventually(lambda: not os.path.exists("/sys/class/net/at-test0"), "the test host's interface is gone")


@pytest.fixture(scope="module")
def there():
    # Two runs at once on one machine would have one name and one address for two test hosts.
    with open("/tmp/atoll-test-host.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with machine():
            yield THERE


def connect(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(1)
        sock.connect((address, port))
        return sock.recv(64).decode()


def connect_link_local(address, port):
    deadline = time.monotonic() + 20
    while True:
        with socket.socket(socket.AF_INET6) as sock:
            sock.settimeout(1)
            try:
                sock.connect((address, port, 0, socket.if_nametoindex("eth0")))
                return
            except OSError as error:
                # A fresh interface first makes sure that nobody else has its address.
                if error.errno != errno.EADDRNOTAVAIL or time.monotonic() > deadline:
                    raise


def serve(port):
    server = socket.create_server(("0.0.0.0", port))
    globals()["kept"] = server


def address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("198.51.100.2", 9))
        return sock.getsockname()[0]


def gateway():
    with open("/proc/net/route") as file:
        routes = [line.split() for line in file.readlines()[1:]]
    number = next(int(route[2], 16) for route in routes if int(route[1], 16) == 0)
    return socket.inet_ntoa(struct.pack("<I", number))


def change_route():
    """RTM_NEWROUTE: a route to everywhere by way of loopback."""
    body = struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("HHi", 8, 4, 1)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(3)
        sock.send(struct.pack("IHHII", 16 + len(body), 24, 0x505, 1, 0) + body)
        code = struct.unpack("i", sock.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, "netlink")


@pytest.fixture(scope="module")
def connected(root_maker, there):
    with root_maker.create(network="all") as box:
        yield box


def test_it_reaches_another_machine_under_the_hosts_address(root_maker, connected, there):
    assert root_maker.try_outside(connect, there, PORT) == HOST
    assert connected.try_cell(connect, there, PORT) == HOST


def test_it_does_not_reach_the_address_of_clouds_metadata(root_maker, connected):
    assert root_maker.try_outside(connect, METADATA, PORT) == HOST
    assert connected.try_cell(connect, METADATA, PORT) in NO_WAY


def test_it_does_not_reach_the_hosts_loopback(root_maker, connected):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert connected.try_cell(connect, "127.0.0.1", port) in NO_WAY


def test_it_does_not_reach_the_host_by_its_link_local_address(connected):
    name = residue.interfaces(connected.id)[0]
    shown = eventually(lambda: ip("-6", "-o", "addr", "show", "dev", name, "scope", "link").stdout, "it has one")
    address = shown.split()[3].split("/")[0]
    eventually(lambda: "tentative" not in ip("-6", "addr", "show", "dev", name).stdout, "the address can be used")
    with socket.socket(socket.AF_INET6) as server:
        server.bind(("::", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.socket(socket.AF_INET6) as control:
            control.connect((address, port, 0, socket.if_nametoindex(name)))
        assert connected.try_cell(connect_link_local, address, port) in NO_WAY


def test_it_does_not_reach_a_neighbour(root_maker, connected):
    with root_maker.create(network="all") as neighbour:
        assert neighbour.try_cell(serve, 9000) == "ok"
        where = neighbour.try_cell(address)
        with socket.create_connection((where, 9000), timeout=5):
            pass  # from the host it can be reached, so it listens
        assert connected.try_cell(connect, where, 9000) in NO_WAY


def test_nobody_inside_can_change_the_routes(connected):
    assert connected.try_cell(change_route) == "EPERM"


def test_it_leaves_no_interface_and_no_rule(root_maker, there):
    for _ in range(4):
        box = root_maker.create(network="all")
        assert residue.interfaces(box.id)
        assert residue.tables(box.id)
        processes = residue.descendants(box.handle["pid"])
        box.destroy()
        assert residue.tables(box.id) == []
        eventually(lambda box=box: not residue.interfaces(box.id), "the interface is gone")
        eventually(lambda box=box, once=processes: residue.traces(root_maker, box, once) == {}, "nothing is left")


@pytest.fixture(scope="module")
def tunnelled(there):
    """A sandbox of a user who may open /dev/net/tun, here by way of a device in mounts of their own."""
    if not shutil.which("pasta"):
        pytest.skip("pasta is not installed")
    maker = Maker("tun", USER, devices={"/dev/net/tun": os.makedev(10, 200)})
    try:
        with maker.create(network="all") as box:
            yield box
    finally:
        maker.close()


def test_a_users_reaches_another_machine_and_no_metadata(tunnelled, there):
    assert tunnelled.try_cell(connect, there, PORT) == HOST
    assert tunnelled.try_cell(connect, METADATA, PORT) in NO_WAY
    assert tunnelled.try_cell(change_route) == "EPERM"


def test_a_users_does_not_reach_the_hosts_loopback(tunnelled):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for where in ("127.0.0.1", tunnelled.try_cell(gateway)):
            assert tunnelled.try_cell(connect, where, port) in NO_WAY


def test_an_ordinary_user_is_told_when_it_cannot_be_had(user_maker):
    if os.access("/dev/net/tun", os.R_OK) and os.stat("/dev/net/tun").st_mode & 0o006 == 0o006:
        pytest.skip("here any user may open /dev/net/tun")
    with pytest.raises(Refused) as caught:
        user_maker.create(network="all")
    assert caught.value.type == "Unsupported"
    assert "/dev/net/tun" in caught.value.message
