"""An ordinary user hears of the file API and the gate, and asks for no more."""

from __future__ import annotations

import os

import pytest
from tests.conformance.as_user import OtherUser


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="rootless.py itself can be run as an ordinary user here")
def test_an_ordinary_user_hears_of_the_file_api():
    with OtherUser() as user:
        done = user.pytest("tests/audit/rootless.py", "-q", "--tb=short")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert "2 passed" in done.stdout
