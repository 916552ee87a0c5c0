"""network="all" on gVisor leads out, and to nothing that `engine.closed` lists: its frames pass the host's rules."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess

import pytest

from atoll import Sandbox, Snapshots

from ..conformance.as_user import OtherUser
from ..runsc import left_of, needs_runsc
from . import residue
from .harness import eventually, script
from .test_network_all import CLOSED, CLOSED6, HOST, PORT, THERE, address, both, connect, reach, serve, there  # noqa: F401  # a fixture

pytestmark = [needs_runsc, pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0: without it is refused")]


def tried(sandbox, function, *arguments):
    done = sandbox.run_code(script(function, *arguments))
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def connected(there):  # noqa: F811
    with Sandbox.create("gvisor", network="all", lifetime=300) as sandbox:
        yield sandbox


def test_it_leads_out_under_the_hosts_address_and_not_to_metadata(connected):
    assert tried(connected, connect, THERE, PORT) == HOST
    everything = [THERE, *CLOSED, *CLOSED6]
    assert tried(connected, reach, everything, PORT, "") == both(THERE)
    assert tried(connected, reach, everything, PORT, "eth0") == both(THERE)
    # The control: without that chain it reaches them, but for those of IPv6, which it has no way to.
    (table,) = residue.tables(connected.id)
    subprocess.run(["/usr/sbin/nft", "flush", "chain", "inet", table, "arrive"], check=True)
    assert tried(connected, reach, everything, PORT, "") == both(THERE, *CLOSED)


def test_neither_the_hosts_loopback_nor_a_neighbour_is_reached(connected):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert tried(connected, reach, ["127.0.0.1"], port, "") == []
        assert tried(connected, reach, ["127.0.0.1"], port, "eth0") == []
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    with Sandbox.create("gvisor", network="all") as neighbour:
        tried(neighbour, serve, 9000)
        where = tried(neighbour, address)
        with socket.create_connection((where, 9000), timeout=5):
            pass  # from the host it can be reached, so it listens
        assert tried(connected, reach, [where], 9000, "") == []


def test_nothing_is_left_of_it_and_a_rollback_has_one_again(there):  # noqa: F811
    sandbox = Sandbox.create("gvisor", network="all", lifetime=300)
    name = f"net-{os.urandom(4).hex()}"
    sandbox.snapshot(name)
    try:
        sandbox.rollback(name)
        assert tried(sandbox, connect, THERE, PORT) == HOST
    finally:
        Snapshots("gvisor").delete(name)
    os.kill(sandbox._core._record.handle.data["pid"], signal.SIGKILL)
    assert residue.tables(sandbox.id)
    sandbox.destroy()
    assert residue.tables(sandbox.id) == []
    eventually(lambda: not residue.interfaces(sandbox.id), "the interface is gone")
    assert left_of(sandbox) == []


def test_an_ordinary_user_is_refused_and_told_where_it_can_be_had():
    code = (
        "from atoll import Sandbox, Unsupported\n"
        "try: Sandbox.create('gvisor', network='all')\n"
        "except Unsupported as error: print(error.message, error.hint)"
    )
    with OtherUser() as user:
        done = user.python("-c", code)
    assert "needs root" in done.stdout, done.stderr
    assert "use the jail" in done.stdout
