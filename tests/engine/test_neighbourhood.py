"""What sandboxes share with one another and with the host that they must not: names, counters, descriptors, time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from atoll import Sandbox
from atoll.engine import cgroups, launch
from atoll.engine.layout import Layout

ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to make sandboxes as root does")
WALLS = [
    "jail",
    pytest.param("bwrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs the program bwrap")),
]


@pytest.fixture
def home(monkeypatch):
    """Short, since Unix sockets lie in it."""
    path = tempfile.mkdtemp(prefix="an-", dir="/tmp")
    monkeypatch.setenv("ATOLL_HOME", path)
    yield path
    launch.shut_down(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("wall", WALLS)
def test_nothing_in_proc_tells_of_the_disks_and_groups_of_others(home, wall):
    """The control is the host, which has all of this."""
    hidden = ("/proc/fs", "/proc/bus")
    with Sandbox.create(driver=wall) as sandbox:
        for path in hidden:
            assert os.listdir(path)
            assert sandbox.run(f"ls -A {path}").stdout == ""
            assert sandbox.run(f"mkdir {path}/x").exit_code != 0
        with open("/proc/cgroups", encoding="ascii") as file:
            assert file.read()
        assert sandbox.run("cat /proc/cgroups").stdout == ""
        assert sandbox.run("cat /proc/meminfo").stdout.startswith("MemTotal")


def daemons_of(home: str) -> list[int]:
    """The processes whose listening sockets or logs lie in a state directory: by what they have open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/fd/1").startswith(home):
                found.append(int(pid))
        except OSError:
            continue
    return found


def opened(pid: int) -> set[str]:
    names = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            continue
    return names


def test_what_the_first_caller_had_open_stays_open_nowhere(home, tmp_path):
    """The control is a child of the same caller, which inherits it."""
    secret = tmp_path / "secret"
    secret.write_text("theirs")
    code = (
        "import os, subprocess, sys; from atoll import Sandbox\n"
        f"fd = os.open({str(secret)!r}, os.O_RDONLY); os.set_inheritable(fd, True); os.dup2(fd, 77)\n"
        "print(subprocess.run(['readlink', '/proc/self/fd/77'], close_fds=False, capture_output=True).stdout.decode())\n"
        "Sandbox.create().destroy()\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert str(secret) in said
    daemons = daemons_of(Layout(home).run)
    assert daemons
    assert all(str(secret) not in opened(pid) for pid in daemons)


@ROOT
@pytest.mark.parametrize("wall", WALLS)
def test_all_sandboxes_together_weigh_as_one_process_against_the_host(home, wall):
    """Without a limit of its own 256 processes that spin would count as 256."""
    hierarchy = cgroups.find()
    if hierarchy is None or "cpu" not in hierarchy.parents:
        pytest.skip("needs a control group for processors")
    with Sandbox.create(driver=wall) as sandbox:
        group = cgroups.Group(hierarchy, sandbox.id)
        members = group.members()
        assert members
        parent = hierarchy.parents["cpu"]
        for pid in members:
            with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
                lines = [line.rstrip("\n").split(":", 2) for line in file]
            where = next(path for _, names, path in lines if "cpu" in names.split(",") or (len(lines) == 1 and not names))
            assert where.startswith(f"/{os.path.basename(parent)}") or f"/{os.path.basename(parent)}/" in where
    with open("/proc/self/cgroup", encoding="ascii") as file:
        assert f"cpu:/{os.path.basename(parent)}\n" not in file.read()
    name, usual = ("cpu.shares", "1024") if hierarchy.version == 1 else ("cpu.weight", "100")
    with open(f"{parent}/{name}", encoding="ascii") as file:
        assert file.read().strip() == usual
