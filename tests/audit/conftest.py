"""Real sandboxes: denials come from a kernel."""

from __future__ import annotations

import time

import pytest

from atoll import Sandbox
from atoll.policy.permissions import check_permissions


@pytest.fixture
def make():
    """Makes sandboxes that end with the test."""
    made = []

    def create(driver="jail", **wishes):
        made.append(Sandbox.create(driver, **wishes))
        return made[-1]

    yield create
    for each in made:
        each.destroy()


@pytest.fixture
def box(make):
    return make()


@pytest.fixture
def ruled():
    """Has a sandbox believe that it was made with these rules, for what happens outside of its wall."""

    def rule(sandbox, permissions):
        record = sandbox._core._record
        record.info = record.info._replace(spec=record.info.spec._replace(permissions=check_permissions(permissions)))
        return sandbox

    return rule


@pytest.fixture
def eventually():
    """Waits until something is so, instead of for a time that might be long enough."""

    def wait(condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while not (outcome := condition()):
            assert time.monotonic() < deadline, "it never became so"
            time.sleep(0.02)
        return outcome

    return wait
