"""What sandboxes share with one another and with the host that they must not: names, counters, descriptors, time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from tests.conformance.as_user import OtherUser

from atoll import Busy, DiskFull, Sandbox
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
        "shown = subprocess.run(['readlink', '/proc/self/fd/77'], close_fds=False, capture_output=True)\n"
        "print(shown.stdout.decode())\n"
        "Sandbox.create().destroy()\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert str(secret) in said
    daemons = daemons_of(Layout(home).run)
    assert daemons
    assert all(str(secret) not in opened(pid) for pid in daemons)


def groups_of(pid: int) -> dict[str, str]:
    """The control group of a process, by controller; version 2 has one for all, called ""."""
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    return {name: path for _, names, path in lines for name in names.split(",")}


@ROOT
@pytest.mark.parametrize("wall", WALLS)
def test_every_sandbox_is_in_all_its_groups_whatever_it_was_made_with(home, wall):
    """A group that it does not get into would limit nobody. The control: this process is in none of them."""
    hierarchy = cgroups.find()
    if hierarchy is None:
        pytest.skip("needs a control group")
    wanted = hierarchy.controllers if hierarchy.version == 1 else {""}
    for disk in (None, "32M") * 8:
        with Sandbox.create(driver=wall, resources={"disk": disk} if disk else {}) as sandbox:
            members = cgroups.Group(hierarchy, sandbox.id).members()
            assert members
            for pid in members:
                found = groups_of(pid)
                assert {name for name in wanted if found[name].endswith(f"/{sandbox.id}")} == wanted
            own = groups_of(os.getpid())
            assert not any(own[name].endswith(f"/{sandbox.id}") for name in wanted)


@ROOT
@pytest.mark.parametrize("wall", WALLS)
def test_a_sandbox_has_the_time_of_one_however_many_processes_it_has(home, wall):
    """Its group weighs as much as that of any other, and all together as one process of the host."""
    hierarchy = cgroups.find()
    if hierarchy is None or "cpu" not in hierarchy.parents:
        pytest.skip("needs a control group for processors")
    name, usual = ("cpu.shares", "1024") if hierarchy.version == 1 else ("cpu.weight", "100")
    parent = hierarchy.parents["cpu"]
    with Sandbox.create(driver=wall) as one, Sandbox.create(driver=wall) as other:
        for path in (parent, f"{parent}/{one.id}", f"{parent}/{other.id}"):
            with open(f"{path}/{name}", encoding="ascii") as file:
                assert file.read().strip() == usual


MEGABYTE = 1 << 20


def fill(sandbox: Sandbox, name: str, megabytes: int) -> int:
    """The exit code of somebody who writes that much."""
    return sandbox.run(f"head -c {megabytes}M /dev/urandom > {name}").exit_code


@ROOT
@pytest.mark.parametrize("wall", WALLS)
def test_a_disk_limit_is_one_for_all_layers_together(home, wall):
    """The control: what fits is written, and is all there."""
    with Sandbox.create(driver=wall, resources={"disk": "32M"}) as sandbox:
        assert fill(sandbox, "a", 10) == 0
        sandbox.snapshot("one")
        assert fill(sandbox, "b", 10) == 0
        sandbox.snapshot("two")
        assert sandbox.metrics().disk > 20 * MEGABYTE
        assert fill(sandbox, "c", 14) != 0
        assert sandbox.metrics().disk <= 32 * MEGABYTE
        assert sandbox.run("stat -c %s a b").stdout.split() == [str(10 * MEGABYTE)] * 2


@ROOT
@pytest.mark.parametrize("wall", WALLS)
def test_nothing_left_is_said_and_a_rollback_gives_room_again(home, wall):
    with Sandbox.create(driver=wall, resources={"disk": "32M"}) as sandbox:
        sandbox.snapshot("empty")
        with pytest.raises(DiskFull, match=r"disk limit of this sandbox is 33554432 bytes"):  # noqa: PT012 - one of six
            for number in range(6):
                fill(sandbox, f"a{number}", 40)
                sandbox.snapshot(f"full{number}")
        assert sandbox.metrics().disk <= 32 * MEGABYTE
        assert sandbox.run("rm -f a* && echo still").stdout == "still\n"
        sandbox.rollback("empty")
        assert fill(sandbox, "a", 20) == 0


@ROOT
@pytest.mark.parametrize("wall", WALLS)
def test_forks_and_what_is_made_from_snapshots_have_what_is_left(home, wall):
    with Sandbox.create(driver=wall, resources={"disk": "32M"}) as sandbox:
        assert fill(sandbox, "a", 20) == 0
        sandbox.snapshot("one")
        with sandbox.fork(1)[0] as twin:
            assert fill(twin, "b", 4) == 0
            assert fill(twin, "c", 12) != 0
        with pytest.raises(DiskFull, match="disk limit"):
            Sandbox.create(driver=wall, snapshot="one", resources={"disk": "16M"})
        with Sandbox.create(driver=wall, snapshot="one", resources={"disk": "64M"}) as larger:
            assert fill(larger, "b", 30) == 0


@ROOT
def test_the_source_of_a_sandbox_takes_none_of_its_disk(home, tmp_path):
    (tmp_path / "large").write_bytes(os.urandom(24 * MEGABYTE))
    with Sandbox.create(source=tmp_path, preset="full-access", resources={"disk": "32M"}) as sandbox:
        assert fill(sandbox, "a", 14) == 0
        sandbox.snapshot("one")
        assert fill(sandbox, "b", 14) == 0


@ROOT
def test_who_writes_while_it_is_measured_gets_no_more(home):
    """What it writes until it is held lies below the new disk, which was made before that."""
    code = "for n in $(seq 400); do head -c 1M /dev/urandom > /tmp/f$n || exit; done"
    with Sandbox.create(resources={"disk": "64M"}) as sandbox:
        sandbox.run(f"({code}) >/dev/null 2>&1 &")
        for number in range(6):
            with contextlib.suppress(Busy, DiskFull):
                sandbox.snapshot(f"n{number}", force=True)
        assert sandbox.metrics().disk <= 64 * MEGABYTE


def host_id(sandbox: Sandbox) -> int:
    """Of its processes, as the host sees them."""
    hierarchy = cgroups.find()
    assert hierarchy is not None
    found = {os.stat(f"/proc/{pid}").st_uid for pid in cgroups.Group(hierarchy, sandbox.id).members()} - {0}
    assert len(found) == 1
    return found.pop()


@ROOT
@pytest.mark.parametrize("wall", WALLS)
@pytest.mark.parametrize("stacked", [False, True])
def test_a_resumed_sandbox_is_a_new_user_of_the_host_and_has_its_files(home, wall, stacked, tmp_path):
    """The id that it had may be another's by now. All it has written is its own still, and can be changed."""
    (tmp_path / "given").write_text("source")
    with Sandbox.create(driver=wall, source=tmp_path, preset="full-access") as sandbox:
        before = host_id(sandbox)
        sandbox.run("mkdir d && echo 1 > d/kept && echo 2 > removed && ln -s d link && echo 3 > /tmp/t && echo 4 > ~/h")
        if stacked:
            sandbox.snapshot("below")
            sandbox.run("echo 5 > upper")
        sandbox.stop()
        sandbox.resume()
        assert host_id(sandbox) != before
        assert sandbox.run("cat d/kept removed /tmp/t ~/h given").stdout == "1\n2\n3\n4\nsource"
        assert sandbox.run("stat -c %u:%g d d/kept link /tmp/t ~/h . given | sort -u").stdout == "1000:1000\n"
        changes = "echo more >> d/kept && rm removed && mv /tmp/t d/t && echo x >> given && rm -rf link"
        assert sandbox.run(changes).exit_code == 0
        sandbox.snapshot("after")
        with sandbox.fork(1)[0] as twin:
            assert twin.run("cat d/kept d/t; echo y >> d/kept; ls").stdout.startswith("1\nmore\n3\nd\ngiven\n")
        sandbox.stop()
        sandbox.resume()
        assert host_id(sandbox) != before
        assert sandbox.run("cat d/kept && echo z >> d/kept && stat -c %u d/kept").stdout == "1\nmore\n1000\n"
        assert "d/kept" in str(sandbox.diff())


AS_A_USER = """
import pytest
from atoll import DiskFull, Sandbox

with Sandbox.create(resources={"disk": "32M"}) as sandbox:
    assert sandbox.info.limits["disk"] == "polled"
    sandbox.run("head -c 16M /dev/urandom > a", check=True)
    sandbox.snapshot("one")
    assert sandbox.metrics().disk >= 16 << 20
    sandbox.run("head -c 14M /dev/urandom > b", check=True)
    assert sandbox.metrics().disk >= 30 << 20
    sandbox.run("head -c 1600K /dev/urandom > c", check=True)
    with pytest.raises(DiskFull, match="disk limit of this sandbox is 33554432 bytes"):
        sandbox.snapshot("two")
    with pytest.raises(DiskFull, match="disk limit of this sandbox is 16777216 bytes"):
        Sandbox.create(snapshot="one", resources={"disk": "16M"})
    sandbox.rollback("one")
    sandbox.run("head -c 14M /dev/urandom > b", check=True)
"""


@ROOT
def test_the_same_where_the_limit_is_polled():
    with OtherUser() as user:
        done = user.python("-c", AS_A_USER)
    assert done.returncode == 0, done.stderr
