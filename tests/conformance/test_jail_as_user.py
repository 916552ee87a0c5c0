"""The jail keeps the contract for an ordinary user too. As root `test_jail.py` has shown only half of it."""

from __future__ import annotations

import os

import pytest

from .as_user import OtherUser


@pytest.mark.root
@pytest.mark.timeout(400)
@pytest.mark.skipif(os.getuid() != 0, reason="test_jail.py itself runs as an ordinary user here")
def test_the_jail_keeps_the_contract_for_an_ordinary_user():
    with OtherUser() as user:
        done = user.pytest("tests/conformance/test_jail.py", "-q", "--tb=short", "--durations=5")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
