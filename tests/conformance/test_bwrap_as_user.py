"""bubblewrap for an ordinary user. As root `test_bwrap.py` has shown only half of it; here is what differs."""

from __future__ import annotations

import os

import pytest

from .as_user import OtherUser

# What an ordinary user's wall is made of differently: its user namespace, limits that are polled, views by mounts.
DIFFERENT = (
    "each_level_holds or rules_are_exchanged or only_what_the_rules or discarded or snapshot_was_taken or rollback "
    "or twins or bounded or strict or ordinary_user or cannot_be_read or cannot_be_seen or there_is_only_the_loopback "
    "or paused or was_stopped or shows_its_directory or outlives_its_maker or forked_twice"
)


@pytest.mark.root
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.getuid() != 0, reason="test_bwrap.py itself runs as an ordinary user here")
def test_bubblewrap_keeps_the_contract_for_an_ordinary_user():
    with OtherUser() as user:
        done = user.pytest("tests/conformance/test_bwrap.py", "-q", "--tb=short", "--durations=5", "-k", DIFFERENT)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
