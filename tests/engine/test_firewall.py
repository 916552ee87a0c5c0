"""`network="all"` of root where the host's firewall passes on nothing that it does not know, as with Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from atoll.engine import firewall, launch

PROGRAM = """
import os, subprocess, sys, time
from atoll import Sandbox
from atoll.engine import firewall, network

def run(*words, check=True):
    return subprocess.run(words, capture_output=True, text=True, check=check).stdout

there = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE)
try:
    there.stdout.readline()
    inside = ["nsenter", f"--net=/proc/{there.pid}/ns/net"]
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "at-test0", "type", "veth", "peer", "name", "eth0", "netns", str(there.pid))
    run("ip", "addr", "add", "198.51.100.1/24", "dev", "at-test0")
    run("ip", "link", "set", "at-test0", "up")
    run(*inside, "ip", "addr", "add", "198.51.100.2/24", "dev", "eth0")
    run(*inside, "ip", "link", "set", "eth0", "up")
    server = "import socket; s = socket.create_server(('198.51.100.2', 8123)); print(flush=True)\\n" \\
             "while True: s.accept()[0].close()"
    serving = subprocess.Popen([*inside, sys.executable, "-S", "-c", server], stdout=subprocess.PIPE)
    serving.stdout.readline()
    run("iptables", "-P", "FORWARD", "DROP")
    ask = "import socket; socket.create_connection(('198.51.100.2', 8123), 1).close(); print('there')"
    with Sandbox.create("jail", network="all") as one, Sandbox.create("jail", network="all") as two:
        print(one.run(["python3", "-c", ask], check=False).stdout.strip(), "one")
        firewall.take_back(network.interface(one.id))
        print(one.run(["python3", "-c", ask], check=False).stderr.splitlines()[-1])
        print(two.run(["python3", "-c", ask], check=False).stdout.strip(), "two")
        name = network.interface(two.id)
        print(run("iptables", "-S", "FORWARD").count(name))
    print(run("iptables", "-S", "FORWARD").split("\\n"))
    run("iptables", "-P", "FORWARD", "ACCEPT")
    with Sandbox.create("jail", network="all") as three:
        left = run("iptables", "-S", "FORWARD").split("\\n")
        print(three.run(["python3", "-c", ask], check=False).stdout.strip(), left)
finally:
    there.kill(); there.wait()
    serving.kill(); serving.wait()
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("iptables", path="/usr/sbin:/usr/bin") is None, reason="needs iptables, and root"
)
def test_packets_pass_where_the_policy_drops_them_and_nothing_is_left():
    home = tempfile.mkdtemp(prefix="at-", dir="/tmp")
    try:
        done = subprocess.run(
            ["unshare", "--net", sys.executable, "-c", PROGRAM],
            env={**os.environ, "ATOLL_HOME": home, "PATH": "/usr/sbin:/usr/bin"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        launch.shut_down(home)
        shutil.rmtree(home, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    first, denied, second, count, left, open_policy = done.stdout.splitlines()
    assert first == "there one"
    assert "TimeoutError" in denied or "timed out" in denied, "the control: without the rule nothing passes"
    assert second == "there two"
    assert count == "2"
    assert left == "['-P FORWARD DROP', '']", "and the rules go with their sandboxes"
    assert open_policy == "there ['-P FORWARD ACCEPT', '']", "where packets pass anyhow no rule is added"


@pytest.mark.parametrize(
    ("listed", "chain"),
    [
        ("table inet filter {\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n",
         "inet filter forward"),
        ("table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n",
         None),
        (
            "table inet x {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}\n",
            None,
        ),
        ("table inet x {\n\tchain pass {\n\t\ttype filter hook forward priority 0; policy accept;\n\t}\n}\n", None),
        ("", None),
    ],
    ids=["own", "iptables", "input", "open", "none"],
)  # fmt: skip
def test_a_chain_of_the_hosts_own_that_drops_is_found(listed, chain):
    assert firewall.closed_chain(listed) == chain
