"""The wasm driver keeps the contract for an ordinary user too, without a control group and without any right."""

from __future__ import annotations

import os
import shutil

import pytest

from atoll.drivers import wasm_runtime

from .as_user import USER, OtherUser

# What differs for a user: who holds the limits, and what is left of the second wall.
CHOSEN = "limit or memory or timeout or interrupt or outlast or share or wall or lifetime or stop"


@pytest.mark.root
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.getuid() != 0, reason="test_wasm.py itself runs as an ordinary user here")
def test_the_wasm_driver_keeps_the_contract_for_an_ordinary_user():
    runtime = wasm_runtime.find()
    wasm_runtime.ensure(runtime)
    with OtherUser() as user:
        _lend(runtime, user)
        done = user.pytest("tests/conformance/test_wasm.py", "-q", "--tb=short", "--durations=5", "-k", CHOSEN)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout


def _lend(runtime, user):
    """Compiled code is taken from nobody else; so the user gets a copy, as if it had compiled it."""
    cache = os.path.join(user._home, ".cache", "atoll", "wasm")
    os.makedirs(cache, mode=0o700)
    shutil.copytree(runtime.home, os.path.join(cache, os.path.basename(runtime.home)))
    for top, _, files in os.walk(os.path.join(user._home, ".cache")):
        for name in (".", *files):
            os.chown(os.path.join(top, name), USER, USER)
