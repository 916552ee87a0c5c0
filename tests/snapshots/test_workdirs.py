"""No working directory that is accepted loses what is written in it."""

from __future__ import annotations

import os

import pytest
from tests.containers import needs_docker, shared_engine
from tests.runsc import needs_runsc

from atoll import InvalidInput, Sandbox, Snapshots
from atoll.engine.orders import check_workdir

_ACCEPTED = ("/home/user", "/root", "/app", "/var", "/var/tmp", "/mnt/deep/er", "/workspace/below", "/packages2")


def _keeps_its_files(box, again):
    """In the workspace and in the home, whether these are one or not."""
    name = "dir-" + os.urandom(4).hex()
    box.run("echo kept > a; echo home > ~/h", check=True)
    look = "cat a ~/h; pwd; ls | grep -c later"
    kept = f"kept\nhome\n{box.run('pwd').stdout}0\n"
    box.snapshot(name)
    try:
        box.run("echo later > later; rm a", check=True)
        box.rollback(name)
        assert box.run(look).stdout == kept
        for other in (again(name), box.fork()):
            with other:
                assert other.run(look).stdout == kept
                assert other.files.read("a") == "kept\n"
        box.stop()
        box.resume()
        assert box.run(look).stdout == kept
    finally:
        Snapshots(box.driver).delete(name)


@pytest.mark.parametrize("workdir", _ACCEPTED)
def test_what_is_accepted_keeps_its_files(home, workdir):
    with Sandbox.create(workdir=workdir) as box:
        _keeps_its_files(box, lambda name: Sandbox.create(snapshot=name))


def test_a_source_is_kept_in_the_home(home, tmp_path):
    (tmp_path / "theirs").write_text("source")
    with Sandbox.create(workdir="/home/user", source=tmp_path, preset="full-access") as box:
        box.files.write("ours", "1")
        with box.fork() as twin:
            assert twin.run("cat theirs ours; pwd").stdout == "source1/home/user\n"
        assert [change.path for change in box.diff()] == ["ours"]


def test_so_it_is_with_bubblewrap(home):
    with Sandbox.create("bwrap", workdir="/home/user") as box:
        _keeps_its_files(box, lambda name: Sandbox.create("bwrap", snapshot=name))


@needs_docker
def test_so_it_is_in_a_container(home):
    with shared_engine(), Sandbox.create("docker", workdir="/home/user") as box:
        _keeps_its_files(box, lambda name: Sandbox.create("docker", snapshot=name))


@needs_runsc
def test_so_it_is_in_gvisor(home):
    with Sandbox.create("gvisor", workdir="/home/user") as box:
        _keeps_its_files(box, lambda name: Sandbox.create("gvisor", snapshot=name))


@pytest.mark.parametrize("workdir", ["/home", "/home/other", "/home/user/deep", "/root/x", "/tmp", "/usr/x", "/etc"])
def test_what_would_cover_the_systems_own_is_refused_with_some_that_are_not(workdir):
    with pytest.raises(InvalidInput, match="choose one like /workspace, /app or /home/user"):
        check_workdir(workdir)
    for good in _ACCEPTED:
        check_workdir(good)
