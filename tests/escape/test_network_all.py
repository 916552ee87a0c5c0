"""network="all" reaches a test host in a network namespace of our own, and neither metadata nor neighbours.

The test host has ordinary addresses and those where clouds keep their credentials; the host routes all of them to it.
"""

import contextlib
import errno
import fcntl
import json
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
from tests.escape.harness import USER, Maker, Refused, eventually, script

from atoll.testing import wheels

NAME = "at-testhost"
HOST, THERE, METADATA = "198.51.100.1", "198.51.100.2", "169.254.169.254"
HOST6, THERE6 = "2001:db8:a7::1", "2001:db8:a7::2"
CLOSED = [METADATA, "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"]
CLOSED6 = ["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"]
PORT = 8123
NO_WAY = {"ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "timeout", "ETIMEDOUT"}
# It tells who connects the address that it comes from, and answers datagrams.
_SERVER = textwrap.dedent(
    f"""
    import socket, threading
    def answer(datagrams):
        while True:
            data, peer = datagrams.recvfrom(100)
            datagrams.sendto(data, peer)
    for address in {[THERE, THERE6, *CLOSED, *CLOSED6]}:
        # One for each, so that an answer comes from the address that was asked.
        datagrams = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((address, {PORT}))
        threading.Thread(target=answer, args=[datagrams], daemon=True).start()
    server = socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True, backlog=100)
    print("ready", flush=True)
    while True:
        client, peer = server.accept()
        client.sendall(peer[0].removeprefix("::ffff:").encode())
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
        ip("addr", "add", f"{HOST6}/64", "dev", "at-test0", "nodad")
        ip("link", "set", "at-test0", "up")
        for words in (
            ("addr", "add", f"{THERE}/24", "dev", "eth0"),
            ("addr", "add", f"{THERE6}/64", "dev", "eth0", "nodad"),
            *(("addr", "add", f"{each}/32", "dev", "eth0") for each in CLOSED),
            *(("addr", "add", f"{each}/128", "dev", "eth0", "nodad") for each in CLOSED6),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", NAME, *words)
        for each in (*CLOSED, *CLOSED6):
            ip("route", "add", each, "dev", "at-test0")
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


def reach(addresses, port, device):  # noqa: C901  # it is sent inside by itself
    """Those of the addresses that answer, tried all at once: connections, then datagrams that are answered."""
    found = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        tried = []
        for each in addresses:
            sock = socket.socket(socket.AF_INET6 if ":" in each else socket.AF_INET, kind | socket.SOCK_NONBLOCK)
            if device:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
            try:
                sock.connect((each, port))
                if kind == socket.SOCK_DGRAM:
                    sock.send(b"datagram")
            except BlockingIOError:
                pass
            except OSError:
                continue
            tried.append((each, sock))
        deadline = time.monotonic() + 1.5
        while tried and time.monotonic() < deadline:
            for each, sock in list(tried):
                try:
                    said = sock.recv(100)
                except BlockingIOError:
                    continue
                except OSError:
                    said = b""
                tried.remove((each, sock))
                if said:
                    found.append([each, kind])
            time.sleep(0.01)
    return sorted(found)


def both(*addresses):
    """What `reach` gives when they answer."""
    return sorted([each, int(kind)] for each in addresses for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))


def send_bound(address, port, payload, there, there_port):
    """By the device, and then one that is answered, so that the first one is through."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0\0")
        try:
            sock.sendto(payload.encode(), (address, port))
            said = "sent"
        except OSError as error:
            said = errno.errorcode[error.errno]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.connect((there, there_port))
        sock.send(b"after")
        sock.recv(100)
    return said


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


@pytest.mark.parametrize("device", ["", "eth0"])
def test_it_does_not_reach_the_addresses_of_clouds_metadata(root_maker, connected, there, device):
    everything = [THERE, *CLOSED, *CLOSED6]
    assert root_maker.try_outside(reach, everything, PORT, "") == both(*everything)
    assert connected.try_cell(reach, everything, PORT, device) == both(THERE)


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


@pytest.fixture(scope="module", params=["jail", "bwrap"])
def tunnelled(there, request):
    """A sandbox of a user who may open /dev/net/tun, here by way of a device in mounts of their own."""
    if not shutil.which("pasta"):
        pytest.skip("pasta is not installed")
    if request.param == "bwrap" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    maker = Maker("tun", USER, devices={"/dev/net/tun": os.makedev(10, 200)}, driver=request.param)
    try:
        with maker.create(network="all") as box:
            yield box
    finally:
        maker.close()


def test_a_users_reaches_another_machine(tunnelled, there):
    assert tunnelled.try_cell(connect, there, PORT) == HOST
    assert tunnelled.try_cell(change_route) == "EPERM"


@pytest.mark.parametrize("device", ["", "eth0"])
def test_a_users_does_not_reach_the_addresses_of_clouds_metadata(tunnelled, there, device):
    everything = [THERE, THERE6, *CLOSED, *CLOSED6]
    assert tunnelled.maker.try_outside(reach, everything, PORT, "") == both(*everything)
    assert tunnelled.try_cell(reach, everything, PORT, device) == both(THERE, THERE6)


def test_a_users_is_told_at_once_that_metadata_is_closed(tunnelled, there):
    started = time.monotonic()
    assert tunnelled.try_cell(connect, METADATA, PORT) == "ECONNREFUSED"
    assert time.monotonic() - started < 0.9, "before the time of a connection is over"


def test_a_users_does_not_reach_the_hosts_loopback(tunnelled):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for where in ("127.0.0.1", tunnelled.try_cell(gateway)):
            assert tunnelled.try_cell(connect, where, port) in NO_WAY


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1"])
def test_a_users_sends_nothing_to_the_hosts_loopback_by_another_device(tunnelled, there, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as service, socket.socket(family) as server:
        service.bind((address, 0))
        port = service.getsockname()[1]
        server.bind((address, port))
        server.listen()
        tunnelled.try_cell(send_bound, address, port, "from inside", there, PORT)
        with socket.socket(family, socket.SOCK_DGRAM) as control:
            control.sendto(b"from the host", (address, port))
        service.settimeout(5)
        assert service.recv(100) == b"from the host", "what came from inside would have come first"
        assert tunnelled.try_cell(reach, [address], port, "eth0") == []
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def change_rules():
    """NFNL_SUBSYS_NFTABLES, DELTABLE of all tables."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as sock:
        sock.send(struct.pack("IHHII", 20, 0x0A02, 5, 1, 0) + struct.pack("BBH", 1, 0, 0))
        code = struct.unpack("i", sock.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, "netlink")


def test_nobody_inside_can_change_the_rules(tunnelled, there):
    assert tunnelled.try_cell(change_rules) in ("EPERM", "EACCES", "EPROTONOSUPPORT", "EAFNOSUPPORT")
    assert tunnelled.run("nft flush ruleset || /usr/sbin/nft flush ruleset")["exit_code"] != 0
    assert tunnelled.try_cell(reach, [THERE, METADATA], PORT, "eth0") == both(THERE)


def test_a_user_gets_no_network_where_nothing_can_close_it(there):
    """The program that puts the rules up is a broken one, or is not there, in this maker's mounts."""
    tun = {"/dev/net/tun": os.makedev(10, 200)}
    for hidden, words in (({"/usr/sbin/nft": b""}, "nftables"), ({"/usr/sbin/nft": b"#!/bin/false\n"}, "nf_tables")):
        maker = Maker("bare", USER, devices=tun, files=hidden)
        try:
            with pytest.raises(Refused) as caught:
                maker.create(network="all")
            assert caught.value.type == "Unsupported"
            assert words in caught.value.message
            with maker.create() as box:
                assert box.run("echo fine")["stdout"] == "fine\n"
        finally:
            maker.close()


def serves(address, port):
    with socket.socket() as sock:
        return sock.connect_ex((address, port)) == 0


@pytest.mark.parametrize("built", [True, False], ids=["builder", "wheels"])
def test_a_package_that_a_user_installs_reaches_no_metadata(there, tmp_path, built):
    """Its code runs while it is installed: here by a .pth file, which Python runs when it starts.

    Where something is to be built there is a network, the control; wheels are installed without any.
    """
    attempt = script(reach, [THERE, METADATA, CLOSED6[0]], PORT, "eth0").replace("print(", "FOUND.write(")
    pth = (
        "import os, sys; os.path.exists(sys.prefix + '/found') or "
        f"exec({attempt!r}, {{'FOUND': open(sys.prefix + '/found', 'w'), '__name__': 'hostile'}})\n"
    )
    wheels.make(tmp_path, "hostile", {"hostile.pth": pth.replace(", flush=True", ""), "hostile.py": ""})
    serve_files = ["-m", "http.server", "--directory", str(tmp_path), str(PORT + 1)]
    argv = ["/usr/sbin/ip", "netns", "exec", NAME, sys.executable, *serve_files]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            eventually(lambda: serves(THERE, PORT + 1), "it serves")
            env = {
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": f"http://{THERE}:{PORT + 1}/",
                "PIP_TRUSTED_HOST": THERE,
                **({"PIP_NO_BINARY": "another"} if built else {}),
            }
            maker = Maker("pkg", USER, devices={"/dev/net/tun": os.makedev(10, 200)}, env=env)
            try:
                with maker.create(packages=["hostile"]) as box:
                    found = json.loads(box.run("cat /packages/found")["stdout"])
                    assert found == (both(THERE) if built else "ENODEV"), "there is no device at all"
            finally:
                maker.close()
        finally:
            server.kill()


def test_an_ordinary_user_is_told_when_it_cannot_be_had(user_maker):
    if os.access("/dev/net/tun", os.R_OK) and os.stat("/dev/net/tun").st_mode & 0o006 == 0o006:
        pytest.skip("here any user may open /dev/net/tun")
    with pytest.raises(Refused) as caught:
        user_maker.create(network="all")
    assert caught.value.type == "Unsupported"
    assert "/dev/net/tun" in caught.value.message
