"""Packages on walls whose root file system is made of this machine: each has an environment of that root."""

from __future__ import annotations

import os

import pytest
from tests.containers import RUNSC, needs_docker, shared_engine
from tests.runsc import needs_runsc

from atoll import Sandbox
from atoll.cli.packages import main as packages_command
from atoll.engine import roottree
from atoll.errors import Unsupported
from atoll.home import state_dir
from atoll.packages import cache
from atoll.testing import wheels

NAME = "of-a-root"
SEEN = "import of_a_root, sys; of_a_root.A, sys.executable"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """What comes from it is installed by another user, whatever this one's umask."""
    before = os.umask(0o077)
    yield _index(tmp_path, monkeypatch)
    os.umask(before)


def _index(tmp_path, monkeypatch):
    wheels.make(tmp_path, NAME, {"of_a_root.py": "A = 1\n"})
    wheels.use_only(tmp_path, monkeypatch)
    return tmp_path


@needs_runsc
def test_a_twin_has_the_packages_of_then_and_they_are_kept_while_it_lives(index, monkeypatch):
    key = cache.wanted(state_dir(), (NAME,), roottree.PYTHON).key
    with Sandbox.create("gvisor", packages=[NAME], workdir="/app") as parent:
        expected = f"(1, '/packages/bin/{os.path.basename(roottree.PYTHON)}')"
        assert parent.run_code(SEEN).text == expected
        assert parent.run("echo x > mine; command -v python3").stdout == "/packages/bin/python3\n"
        monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
        with parent.fork() as twin:
            assert twin.run_code(SEEN).text == expected
            parent.destroy()
            assert not cache.remove(cache.known(state_dir(), key))
            assert twin.run_code(SEEN, context="another").text == expected
    assert packages_command(["remove", key]) == 0, "its steward has let go of it"


@needs_docker
def test_a_runtime_with_a_kernel_of_its_own_shows_them_too(index, monkeypatch):
    if RUNSC is None:
        pytest.skip("needs runsc (apt-get install runsc)")
    monkeypatch.setenv("ATOLL_DOCKER_RUNTIME", "runsc")
    with shared_engine(), Sandbox.create("docker", packages=[NAME]) as sandbox:
        assert sandbox.run_code("import of_a_root; of_a_root.A").text == "1"


@needs_docker
def test_what_docker_cannot_do_with_packages_is_refused(index):
    with shared_engine(), pytest.raises(Unsupported, match="packages= and image= do not go together"):
        Sandbox.create("docker", image="any", packages=[NAME])
