"""Each test runs on every local wall that is ready and can do what it `needs`; on the others it is not there at all.

A test that asks for `wall` has it as the default wall, so that it calls what it mirrors without naming one.
"""

from __future__ import annotations

import pytest

from atoll import Codebases, Sandbox, registry
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


@pytest.fixture(scope="module")
def usual(wall):
    """The wall as the default one, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_DRIVER", wall)
        yield wall


@pytest.fixture(scope="module")
def shared(usual):
    """A sandbox that the tests of a module share: none of them changes what another looks at, or ends it."""
    with Sandbox.create() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(request, monkeypatch):
    """What a test makes it also removes, as its document does."""
    if "wall" not in request.fixturenames:
        monkeypatch.delenv("ATOLL_DRIVER", raising=False)  # of a test before it, whose wall lasts as long as the module
        yield
        return
    request.getfixturevalue("usual")
    if "shared" in request.fixturenames:
        request.getfixturevalue("shared")
    sandboxes, codebases = alive(), stored()
    yield
    left, kept = alive() - sandboxes, stored() - codebases
    for id in left:
        Sandbox.connect(id).destroy()
    for id in kept:
        Codebases().delete(id)
    assert (left, kept) == (set(), set())


def alive():
    return {info.id for info in Sandbox.list() if info.status != "gone"}


def stored():
    return {codebase.id for codebase in Codebases().list()}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory, for documents that name files as "./my-project"."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(usual):
    """The command `atoll`, in a process of its own, with the wall as its default."""
    return Cli(usual)


@pytest.fixture
def elsewhere(usual):
    """Runs code in another process, which finds sandboxes that this one has made."""

    def start(body, **values):
        driver = type(registry.load(usual, BlockingIO()))
        return Elsewhere(driver, body, values).answer()

    return start
