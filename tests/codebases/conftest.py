"""Codebases are tested on the real disk, each test with a state directory of its own."""

from __future__ import annotations

import pytest

from atoll import Codebases
from atoll.codebases.shelf import Shelf

from .looking import current, tree_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("ATOLL_HOME", str(path))
    return path


@pytest.fixture
def codebases(home):
    return Codebases()


@pytest.fixture
def shelf(home):
    return Shelf()


@pytest.fixture
def source(tmp_path):
    """A small tree with a little of everything that comes through."""
    root = tmp_path / "source"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "readme.md").write_text("hello\n")
    (root / "src" / "run.sh").write_text("#!/bin/sh\n")
    (root / "src" / "run.sh").chmod(0o755)
    (root / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("src/run.sh")
    (root / "dangling").symlink_to("/nowhere/at all")
    return root


@pytest.fixture
def same(shelf):
    """Whether a codebase holds just what a directory does."""

    def check(name, directory, **keywords):
        path = current(shelf, name)
        return tree_of(path, **keywords) == tree_of(directory, **keywords)

    return check
