"""Drivers without a wall, for an ordinary user: limits are polled there, and who makes processes is another one."""

from __future__ import annotations

import os

import pytest

from .as_user import OtherUser

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="the other tests run as an ordinary user here"),
]

LIMITS = "memory or number_of_processes or bomb or disk or strict"
KERNELS = """
from atoll import Sandbox
with Sandbox.create("jupyter") as sandbox:
    print(sandbox.run_code("6 * 7").text, sandbox.refresh().limits["memory"], sandbox.info.walls)
"""


@pytest.mark.timeout(300)
def test_limits_hold_for_an_ordinary_user():
    with OtherUser() as user:
        done = user.pytest("tests/conformance/test_inprocess.py", "-q", "--tb=short", "-k", LIMITS)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout


def test_kernels_run_for_an_ordinary_user_within_the_usual_limits():
    with OtherUser() as user:
        done = user.python("-c", KERNELS)
    assert done.stdout.split() == ["42", "polled", "()"], done.stdout + done.stderr[-5_000:]
