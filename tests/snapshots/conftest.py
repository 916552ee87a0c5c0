"""Snapshots are tested behind the real wall, in a state directory that holds nothing else."""

from __future__ import annotations

import os
import shutil
import tempfile
import time

import pytest

from atoll import Sandbox, Snapshots
from atoll.engine import launch
from atoll.engine.layers import Layers
from atoll.engine.layout import Layout


@pytest.fixture(scope="module")
def home():
    """One for all tests of a module. Short, since Unix sockets lie in it."""
    path = tempfile.mkdtemp(prefix="as-", dir="/tmp")
    before = os.environ.get("ATOLL_HOME")
    os.environ["ATOLL_HOME"] = path
    yield path
    launch.shut_down(path)
    os.environ.pop("ATOLL_HOME")
    if before is not None:
        os.environ["ATOLL_HOME"] = before
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def snapshots(home):
    """What is kept. A test that leaves more than it found, once its snapshots are deleted, fails."""
    kept = Snapshots()
    yield kept
    for each in kept.list():
        kept.delete(each.name)
    deadline = time.monotonic() + 20
    while left := leftovers(home):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def leftovers(home):
    """Layers and drafts that nobody names."""
    places = Layout(home)
    Layers(places).collect()
    # A test that makes no sandbox may be the first of its module, or the only one.
    names = [name for place in (places.layers, places.snapshots) if os.path.isdir(place) for name in os.listdir(place)]
    return [name for name in names if name not in (".lock", ".stage")]


@pytest.fixture
def make(snapshots):
    """Makes sandboxes that end with the test."""
    made = []

    def create(**wishes):
        made.append(Sandbox.create(**wishes))
        return made[-1]

    yield create
    for each in made:
        each.destroy()


@pytest.fixture
def eventually():
    """Waits until something is so, instead of for a time that might be long enough."""

    def wait(condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while not (outcome := condition()):
            assert time.monotonic() < deadline, "it never became so"
            time.sleep(0.01)
        return outcome

    return wait
