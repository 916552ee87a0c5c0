"""The client side is tested on the fake driver: the real guest, started by exec, with no wall around it."""

from __future__ import annotations

import time

import pytest

from atoll import Sandbox
from atoll.sandbox import AsyncSandbox


@pytest.fixture(scope="module")
def sandbox():
    """One for all tests of a module that leave it as they found it."""
    with Sandbox.create("fake", timeout=60) as made:
        yield made


@pytest.fixture
def make():
    """Makes sandboxes that end with the test."""
    made = []

    def create(**wishes):
        made.append(Sandbox.create("fake", **wishes))
        return made[-1]

    yield create
    for each in made:
        each.destroy()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def aio_sandbox(anyio_backend):
    async with await AsyncSandbox.create("fake", timeout=60) as made:
        yield made


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
