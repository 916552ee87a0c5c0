"""The same tests as an ordinary user, with overlays of a user namespace and `user.overlay` attributes."""

from __future__ import annotations

import os
import re

import pytest
from tests.conformance.as_user import OtherUser

HERE = os.path.dirname(os.path.abspath(__file__))
CLOSED = "test_hostile.py::test_what_nobody_may_read_is_told_and_refused"
SUITES = ["test_changes.py", "test_apply.py", "test_conflicts.py", "test_rules.py", "test_races.py", CLOSED]


@pytest.mark.root
def test_the_review_works_for_an_ordinary_user():
    with OtherUser() as user:
        done = user.pytest("-q", "-m", "not root", *(os.path.join(HERE, name) for name in SUITES))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 100
