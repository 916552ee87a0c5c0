"""How a guest starts, and what it is like when nothing happens."""

import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
from tests.guest.rawclient import GUEST, Guest
from tests.guest.support import failure, text

OTHER_PYTHONS = sorted(glob.glob("/root/.pyenv/versions/*/bin/python3.[0-9]*") + glob.glob("/usr/bin/python3.[0-9]*"))
SUPPORTED = [path for path in OTHER_PYTHONS if path.rsplit(".", 1)[-1].isdigit() and int(path.rsplit(".", 1)[-1]) >= 8]


@pytest.fixture
def bare(tmp_path):
    """Only the two packages that a guest needs, with an empty one around them."""
    source = os.path.dirname(os.path.dirname(GUEST))
    package = tmp_path / "lib" / "atoll"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("guest", "wire"):
        shutil.copytree(os.path.join(source, name), package / name, ignore=shutil.ignore_patterns("__pycache__"))
    return package / "guest" / "__main__.py"


@pytest.mark.parametrize("python", SUPPORTED, ids=[os.path.basename(path) for path in SUPPORTED])
def test_it_starts_from_its_two_packages_alone_on_any_supported_python(tmp_path, bare, python):
    guest = Guest(tmp_path, python=python, main=str(bare))
    client = guest.connect()
    assert client.run("/bin/sh", "-c", "echo hi; exit 3").stdout == b"hi\n"
    assert client.run("/bin/sh", "-c", "tty", pty=[24, 80]).ok["exit_code"] == 0
    assert client.run("nothing-of-that-name").ok["exit_code"] == 127
    assert client.upload("write", b"x", path="d/file", parents=True).ok == {"size": 1}
    assert client.do("copy", source="d", target="e").ok == {}
    packed = client.do("pack", path="d").stdout
    assert client.upload("unpack", packed, path="f").ok == {"entries": 1}
    assert client.do("search", path=".", content="x", glob="*").ok == {"truncated": False, "skipped": 0}
    assert client.do("list", path=".", recursive=True).error is None
    assert client.do("remove", path="d", recursive=True).ok == {}
    watch = client.open("watch", path=".", recursive=True)
    assert client.event(watch) == {"ready": True}
    client.cancel(watch)
    client.finish(watch)
    assert text(client.code("x = 41\nx + 1")) == "42"
    assert text(client.code("import asyncio\nawait asyncio.sleep(0, 5)")) == "5"
    error = failure(client.code("def f():\n    1/0\nf()"))
    assert "1/0" in error["traceback"]
    assert "guest" not in error["traceback"]
    assert client.code("import time; time.sleep(60)", timeout=0.2).ok["state_lost"] is False
    killed = client.open("exec", argv=["/bin/sh", "-c", "setsid sleep 60 & sleep 60"])
    client.event(killed)
    client.cancel(killed)
    client.finish(killed)
    assert all("sleep" not in row["command"] for row in client.do("processes").ok["processes"])
    guest.close()


@pytest.mark.parametrize("arguments", [[], ["--control-fd", "x"], ["--control-fd", "3", "--nonsense", "1"]])
def test_a_command_line_that_makes_no_sense_is_told(arguments):
    done = subprocess.run([sys.executable, "-I", "-S", GUEST, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "usage" in done.stderr


def test_the_control_socket_may_be_a_stream(tmp_path):
    ours, theirs = socket.socketpair()
    config = json.dumps({"root": str(tmp_path), "workdir": "/", "env": {"PATH": os.environ["PATH"]}})
    argv = [sys.executable, "-I", "-S", GUEST, "--control-fd", str(theirs.fileno()), "--config", config]
    with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        clients = []
        for _ in range(3):
            near, far = socket.socketpair()
            socket.send_fds(ours, [b"c"], [far.fileno()])
            far.close()
            clients.append(near)
        for near in clients:
            near.sendall(b"\x0d\0\0\0\0\0\0\0\1\0" + b'{"version":1}')
            assert near.recv(100)[10:] == b'{"version":1}'
            near.close()
        ours.close()
        assert process.wait(30) == 0


def test_the_keeper_can_replace_the_environment(guest, client):
    assert client.run("/usr/bin/env").ok["exit_code"] == 0
    guest.control.send(b"e" + json.dumps({"PATH": os.environ["PATH"], "NEW": "caf\u00e9"}).encode())
    later = guest.connect()
    variables = later.run("/usr/bin/env").stdout.splitlines()
    assert sorted(line.split(b"=")[0] for line in variables) == [b"HOME", b"NEW", b"PATH"]
    assert "NEW=café".encode() in variables
    assert text(client.code("import os; os.environ['NEW']")) == "'café'"


def test_an_unknown_order_of_the_keeper_is_ignored(guest, client):
    near, far = socket.socketpair()
    socket.send_fds(guest.control, [b"?later"], [far.fileno()])
    far.close()
    assert near.recv(1) == b""
    near.close()
    assert client.run("echo", "fine").stdout == b"fine\n"


def test_no_module_is_imported_after_the_start(tmp_path, bare):
    """Behind a closed wall the source is out of reach: take it away, and use everything."""
    guest = Guest(tmp_path, main=str(bare))
    client = guest.connect()
    assert client.run("true").ok["exit_code"] == 0
    shutil.rmtree(bare.parent.parent)
    client.upload("write", b"needle", path="d/file", parents=True)
    for op, arguments in (
        ("stat", {"path": "d"}),
        ("list", {"path": ".", "recursive": True}),
        ("search", {"path": ".", "content": "needle"}),
        ("copy", {"source": "d", "target": "e"}),
        ("move", {"source": "e", "target": "f"}),
        ("pack", {"path": "d"}),
        ("remove", {"path": "d", "recursive": True}),
        ("processes", {}),
        ("code", {"code": "def f(): 1/0\nf()"}),
        ("code", {"code": "import asyncio; await asyncio.sleep(0)"}),
        ("exec", {"argv": ["tty"], "pty": [24, 80]}),
        ("exec", {"argv": ["sleep", "60"], "timeout": 0.1}),
    ):
        assert client.do(op, **arguments).error is None, op
    guest.close()


def test_an_idle_guest_never_wakes_up(guest, client):
    client.run("true")
    assert text(client.code("1")) == "1"
    watch = client.open("watch", path=".")
    client.event(watch)
    held = client.open("exec", argv=["sleep", "60"], hold=True, timeout=None)
    client.event(held)
    time.sleep(0.3)
    before = switches(guest)
    time.sleep(0.7)
    assert switches(guest) == before


def switches(guest):
    with open(f"/proc/{guest.process.pid}/status") as file:
        return [line for line in file if "ctxt_switches" in line]


def test_starting_imports_no_more_than_needed():
    heavy = "asyncio,inspect,logging,tempfile,shutil,pathlib,dataclasses,concurrent,multiprocessing,argparse,pickle"
    code = f"import sys, atoll.guest.server; print([m for m in '{heavy}'.split(',') if m in sys.modules])"
    path = os.path.dirname(os.path.dirname(os.path.dirname(GUEST)))
    done = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": path}, capture_output=True, check=True)
    assert done.stdout == b"[]\n"
