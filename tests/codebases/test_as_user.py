"""Codebases of an ordinary user. As root the other files have shown only half of it."""

from __future__ import annotations

import os

import pytest

from ..conformance.as_user import OtherUser


@pytest.mark.root
@pytest.mark.timeout(400)
@pytest.mark.skipif(os.getuid() != 0, reason="the other files themselves run as an ordinary user here")
def test_codebases_of_an_ordinary_user_are_no_different():
    with OtherUser() as user:
        # The deep tree and the kills say nothing new here, and take long.
        files = ("test_codebases.py", "test_trees.py", "test_stage.py", "test_together.py")
        done = user.pytest(*(f"tests/codebases/{name}" for name in files), "-q", "--tb=short", "-k", "not deep_tree")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
