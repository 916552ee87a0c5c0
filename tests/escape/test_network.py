"""network="none" lets nothing out, "host" shares the network and nothing else."""

import contextlib
import os
import socket
import struct
import threading

import pytest
from tests.escape.harness import Refused
from tests.escape.prelude import libc, syscall

GREETING = b"hello from the host"
NO_WAY = {"ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "EPERM", "EACCES", "timeout", "ETIMEDOUT"}


@contextlib.contextmanager
def tcp_server(address, family=socket.AF_INET):
    """A server of the host that greets; its port."""
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, 0))
        server.listen()
        thread = threading.Thread(target=_greet, args=(server,), daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _greet(server):
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        client.sendall(GREETING)
        client.close()


def connect(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(3)
        sock.connect((address, port))
        return sock.recv(64).decode()


def send_datagram(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", (address, port))


def make_socket(family, kind, protocol):
    socket.socket(family, kind, protocol).close()


def resolve(name):
    try:
        return socket.getaddrinfo(name, 80) and "resolved"
    except socket.gaierror:
        return "unresolved"


def interfaces():
    return sorted(name for _, name in socket.if_nameindex())


def add_interface(first):
    """Ask the kernel for a pair of interfaces; first go where one may, if that is wanted."""
    if first:
        assert libc.unshare(0x50000000) == 0
    kind = struct.pack("HH", 9, 1) + b"veth\0\0\0\0"
    name = struct.pack("HH", 9, 3) + b"new0\0\0\0\0"
    body = bytes(16) + name + struct.pack("HH", 4 + len(kind), 18) + kind
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(3)
        sock.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        code = struct.unpack("i", sock.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, "netlink")


def talk_to_oneself(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((address, 0))
        server.listen()
        with socket.create_connection(server.getsockname()[:2], timeout=3):
            server.accept()[0].close()


def sockets_shown():
    with open("/proc/net/tcp") as file:
        return file.read()


def bind_to(address):
    with socket.socket(socket.AF_INET) as sock:
        sock.bind((address, 0))


def join_network(pid):
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    syscall((308, 268), fd, 0)


def host_address():
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return sock.getsockname()[0]


def test_a_server_of_the_host_cannot_be_reached(maker):
    for address in filter(None, ("127.0.0.1", host_address())):
        with tcp_server(address) as port:
            assert maker.try_outside(connect, address, port) == GREETING.decode()
            assert maker.box.try_cell(connect, address, port) in NO_WAY
            assert f":{port:04X} " not in maker.box.try_cell(sockets_shown)


@pytest.mark.skipif(not socket.has_ipv6, reason="this host has no IPv6")
def test_a_server_of_the_host_cannot_be_reached_by_ipv6(maker):
    with tcp_server("::1", socket.AF_INET6) as port:
        assert maker.try_outside(connect, "::1", port) == GREETING.decode()
        for address in ("::1", "::ffff:127.0.0.1"):
            assert maker.box.try_cell(connect, address, port) in NO_WAY


@pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.1", "169.254.169.254", "255.255.255.255", "2001:db8::1"])
def test_no_datagram_leaves(maker, address):
    assert maker.box.try_cell(send_datagram, address, 9) in NO_WAY
    assert maker.box.try_cell(connect, address, 9) in NO_WAY
    assert maker.box.try_cell(send_datagram, "127.0.0.1", 9) == "ok"


def test_there_is_no_interface_but_loopback_and_it_works(maker):
    assert maker.box.try_cell(interfaces) == ["lo"]
    assert set(interfaces()) > {"lo"}
    assert maker.box.try_cell(talk_to_oneself, "127.0.0.1") == "ok"
    assert maker.box.try_cell(talk_to_oneself, "::1") == "ok"
    assert maker.box.try_cell(bind_to, host_address() or "192.0.2.1") == "EADDRNOTAVAIL"


def localhost(family):
    return sorted({found[4][0] for found in socket.getaddrinfo("localhost", 80, family, 0, 0, socket.AI_ADDRCONFIG)})


def all_addresses():
    with open("/proc/net/fib_trie") as trie:
        lines = [line.split() for line in trie]
    ours = [at for at, line in enumerate(lines) if line[:2] == ["/32", "host"] and line[2:] == ["LOCAL"]]
    return sorted({lines[at - 1][1] for at in ours})


def test_localhost_is_found_by_family_by_an_address_that_leads_nowhere(maker):
    assert maker.box.try_cell(localhost, socket.AF_INET) == ["127.0.0.1"]
    assert maker.box.try_cell(localhost, socket.AF_INET6) == ["::1"]
    assert maker.box.try_cell(localhost, socket.AF_UNSPEC) in (["127.0.0.1", "::1"], ["127.0.0.1"])
    assert maker.box.try_cell(all_addresses) == ["127.0.0.1", "192.0.0.8"]
    assert maker.box.try_cell(talk_to_oneself, "192.0.0.8") == "ok"
    for address in ("192.0.0.9", "192.0.0.1", "192.0.0.255", "100:0:0:1::9"):
        assert maker.box.try_cell(connect, address, 9) in NO_WAY
        assert maker.box.try_cell(send_datagram, address, 9) in NO_WAY
    assert "192.0.0.8" not in all_addresses()


def test_nobody_else_has_what_listens_on_that_address(maker):
    done = maker.box.code("import socket\nserver = socket.create_server(('192.0.0.8', 4321))")
    assert done["error"] is None
    assert maker.box.try_cell(talk_to_oneself, "192.0.0.8") == "ok"
    with pytest.raises(OSError):  # noqa: PT011 - unreachable, refused or too late
        connect("192.0.0.8", 4321)


@pytest.mark.parametrize(
    ("family", "kind", "protocol"),
    [
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
        (socket.AF_INET6, socket.SOCK_RAW, 58),
        (17, socket.SOCK_RAW, 0x0300),
        (17, socket.SOCK_DGRAM, 0x0300),
        (40, socket.SOCK_STREAM, 0),
        (38, socket.SOCK_SEQPACKET, 0),
        (44, socket.SOCK_RAW, 0),
        (16, socket.SOCK_RAW, 12),
        (16, socket.SOCK_RAW, 15),
        (16, socket.SOCK_RAW, 16),
    ],
    ids=["icmp", "raw", "raw6", "packet", "packet-dgram", "vsock", "crypto", "xdp", "netfilter", "uevent", "generic"],
)
def test_sockets_below_or_beside_the_internet_cannot_be_made(maker, family, kind, protocol):
    refused = maker.box.try_cell(make_socket, family, kind, protocol)
    assert refused in ("EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT")
    assert maker.box.try_cell(make_socket, socket.AF_INET, socket.SOCK_STREAM, 0) == "ok"


def test_root_outside_can_make_those_sockets(root_maker):
    for family, protocol in ((socket.AF_INET, socket.IPPROTO_ICMP), (17, 0x0300), (16, 15)):
        assert root_maker.try_outside(make_socket, family, socket.SOCK_RAW, protocol) == "ok"


def test_no_interface_can_be_added_and_no_other_network_joined(maker):
    assert maker.box.try_cell(add_interface, False) == "EPERM"
    for pid in (1, "self"):
        assert maker.box.try_cell(join_network, pid) in ("EPERM", "EACCES")
    assert maker.try_outside(add_interface, True) == "ok"


@pytest.mark.parametrize("name", ["example.com", "localhost.localdomain", "metadata.google.internal"])
def test_no_name_is_resolved(maker, name):
    assert maker.box.try_cell(resolve, name) == "unresolved"
    assert maker.box.try_cell(resolve, "localhost") == "resolved"


@pytest.fixture(scope="module")
def shared(maker):
    """A sandbox in the host's network."""
    with maker.create(network="host") as box:
        yield box


def test_host_shares_the_network(shared):
    with tcp_server("127.0.0.1") as port:
        assert shared.try_cell(connect, "127.0.0.1", port) == GREETING.decode()
    assert shared.try_cell(interfaces) == interfaces()


def test_host_gives_no_power_over_the_network(shared, maker):
    assert shared.try_cell(add_interface, False) == "EPERM"
    assert shared.try_cell(make_socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) in ("EPERM", "EACCES")
    assert shared.try_cell(make_socket, 17, socket.SOCK_RAW, 0x0300) == "EAFNOSUPPORT"
    assert shared.try_cell(make_socket, 40, socket.SOCK_STREAM, 0) == "EAFNOSUPPORT"


def connect_unix(name):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(name)
        return sock.recv(64).decode()


def test_host_shares_neither_files_nor_processes_nor_abstract_sockets(shared, maker):
    secret = maker.give_file("beside-the-network.txt", "x")

    def look(path, pid):
        tried = {}
        for name, attempt in (("file", lambda: open(path).close()), ("process", lambda: os.kill(pid, 0))):
            try:
                attempt()
                tried[name] = "ok"
            except OSError as error:
                tried[name] = error.errno
        return tried

    worker = maker._process.pid
    assert maker.try_outside(look, secret, worker) == {"file": "ok", "process": "ok"}
    assert shared.try_cell(look, secret, worker) == {"file": 2, "process": 3}
    if not any(wall.startswith("Landlock v") and int(wall[10:]) >= 6 for wall in shared.info["walls"]):
        return  # docs/explanation/security.md says so
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0atoll-escape-host")
        server.listen()
        thread = threading.Thread(target=_greet, args=(server,), daemon=True)
        thread.start()
        assert maker.try_outside(connect_unix, "\0atoll-escape-host") == GREETING.decode()
        assert shared.try_cell(connect_unix, "\0atoll-escape-host") == "EPERM"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_an_allowlist_is_refused_rather_than_ignored(maker):
    with pytest.raises(Refused) as caught:
        maker.create(network=["example.com"])
    assert caught.value.type == "Unsupported"
