"""Snapshots of an ordinary user, and snapshots that go from root to a user and back."""

from __future__ import annotations

import os
import pathlib
import tempfile

import pytest
from tests import thorough
from tests.conformance.as_user import OtherUser
from tests.snapshots import crossing

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="the tests themselves run as an ordinary user here"),
]


# What the records say of layers and when they go is the same code for everybody.
SAME_FOR_ALL = "not many_at_once and not more_snapshots and not collects and not names and not is_removed"


@pytest.fixture
def shared():
    with tempfile.TemporaryDirectory(prefix="as-", dir="/tmp") as path:
        os.chmod(path, 0o777)
        yield pathlib.Path(path)


def check(done):
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    return done


@pytest.mark.timeout(900)
def test_snapshots_work_for_an_ordinary_user():
    files = [
        f"tests/snapshots/test_{name}.py"
        for name in ("contents", "running", "portable", "garbage", "crashes", "long_chains")
    ]
    with OtherUser() as user:
        done = check(user.pytest(*files, "-q", "--tb=short", "-k", thorough.amount("", SAME_FOR_ALL)))
    assert " passed" in done.stdout


def test_hostile_files_are_refused_for_an_ordinary_user():
    with OtherUser() as user:
        done = check(user.pytest("tests/snapshots/test_hostile_files.py", "-q", "--tb=short", "-k", "link or imported"))
    assert " passed" in done.stdout


def test_a_snapshot_of_root_can_be_imported_by_a_user(home, shared):
    crossing.export(shared)
    with OtherUser() as user:
        check(user.python("-m", "tests.snapshots.crossing", "import", str(shared)))


def test_a_snapshot_of_a_user_can_be_imported_by_root(home, shared, monkeypatch, tmp_path):
    with OtherUser() as user:
        check(user.python("-m", "tests.snapshots.crossing", "export", str(shared)))
    monkeypatch.setenv("HOME", str(tmp_path))
    crossing.import_all(shared)
