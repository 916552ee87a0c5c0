"""What other users of this machine see of a sandbox, also where they may look into the state directory."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess

import pytest

from atoll import Sandbox
from atoll.drivers.docker_wall import DockerWall
from atoll.engine.steward.wall import StartFailed

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to be somebody else"
)
_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state directory whose parents anybody may enter."""
    place = tmp_path / "state"
    place.mkdir(0o700)
    for each in place.parents:
        if stat.S_IMODE(each.stat().st_mode) & 0o005 != 0o005:
            each.chmod(0o755)
    monkeypatch.setenv("ATOLL_HOME", str(place))
    return place


def as_nobody(*command):
    return subprocess.run([*_NOBODY, *command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("driver", ["inprocess", "wasm"])
def test_nobody_else_sees_a_box_or_what_is_known_of_it(home, driver):
    with Sandbox.create(driver, lifetime=600, env={"TOKEN": "of the sandbox alone"}) as sandbox:
        box = sandbox._core._record.handle.data["box"]
        (home.parent / "open").write_text("of the sandbox alone")
        assert as_nobody("grep", "-l", "of the sandbox alone", str(home.parent / "open")).returncode == 0
        assert as_nobody("ls", box).returncode != 0
        assert "alone" not in as_nobody("sh", "-c", f"cat {home}/registry.db*").stdout
        # Each by itself, too: not only because nobody gets there.
        modes = {stat.S_IMODE(os.stat(path).st_mode) for path in (home, box)}
        assert modes == {0o700}
        assert {stat.S_IMODE(each.stat().st_mode) for each in home.glob("registry.db*")} == {0o600}


def test_a_registry_of_an_older_atoll_is_made_private(home):
    path = home / "registry.db"
    path.touch(0o644)
    with Sandbox.create("inprocess", lifetime=600):
        assert {stat.S_IMODE(each.stat().st_mode) for each in home.glob("registry.db*")} == {0o600}


def test_nobody_else_is_taken_for_the_first_process_of_a_container():
    """Into whose mount namespace root puts the files of the sandbox."""
    wall = DockerWall.__new__(DockerWall)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wall.job = {"uid": os.geteuid()}
        assert wall._peer(ours) == os.getpid()
        wall.job = {"uid": 12345}
        with pytest.raises(StartFailed, match="taken the place"):
            wall._peer(ours)
