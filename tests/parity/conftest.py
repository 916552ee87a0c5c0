"""Each test runs on every local wall that is ready and can do what it `needs`; on the others it is not there at all.

A test that asks for `wall` has it as the default wall, so that it calls what it mirrors without naming one.
"""

from __future__ import annotations

import shutil
import tempfile

import pytest

from atoll import Codebases, Sandbox, registry
from atoll.engine import launch
from atoll.io import BlockingIO
from atoll.testing.elsewhere import Elsewhere

from . import walls
from .command import Cli


def pytest_generate_tests(metafunc):
    if "wall" in metafunc.fixturenames:
        names = walls.fit_for(metafunc.function)
        assert names, f"{metafunc.function.__name__} runs on no wall of this machine"
        metafunc.parametrize("wall", names, scope="module")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def home():
    """A state directory for the parity tests alone, with a path that is short enough for Unix sockets."""
    path = tempfile.mkdtemp(prefix="ap-", dir="/tmp")
    yield path
    launch.shut_down(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def usual(home, wall):
    """The wall as the default one, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_HOME", home)
        patch.setenv("ATOLL_DRIVER", wall)
        yield wall


@pytest.fixture(scope="module")
def shared(usual):
    """A sandbox that the tests of a module share: none of them changes what another looks at, or ends it."""
    with Sandbox.create() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """What a test makes it also removes, as its document does."""
    if "wall" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("usual")
    before = {info.id for info in Sandbox.list()}
    yield
    left = [info.id for info in Sandbox.list() if info.id not in before and info.status != "gone"]
    if "shared" in request.fixturenames:
        left = [id for id in left if id != request.getfixturevalue("shared").id]
    codebases = Codebases().list()
    for id in left:
        Sandbox.connect(id).destroy()
    for codebase in codebases:
        Codebases().delete(codebase)
    assert (left, codebases) == ([], [])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory, for documents that name files as "./my-project"."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(usual, home):
    """The command `atoll`, in a process of its own, with the wall as its default."""
    return Cli(home, usual)


@pytest.fixture
def elsewhere(usual):
    """Runs code in another process, which finds sandboxes that this one has made."""

    def start(body, **values):
        driver = type(registry.load(usual, BlockingIO()))
        return Elsewhere(driver, body, values).answer()

    return start
