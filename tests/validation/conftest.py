"""Jobs in a state directory of their own, none of which is left."""

from __future__ import annotations

import pytest

from atoll import Sandbox, validation
from atoll.validation.executing import LABEL


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory, monkeypatch):
    copies = tmp_path_factory.mktemp("copies")
    monkeypatch.setenv("TMPDIR", str(copies))
    yield
    for state in validation.jobs():
        if state.state in ("starting", "running"):
            validation.cancel(state.id)
        validation.forget(state.id)
    left = [info.id for info in Sandbox.list() if LABEL in info.labels and info.status != "gone"]
    for id in left:
        Sandbox.connect(id).destroy()
    assert left == []
    assert list(copies.iterdir()) == []


@pytest.fixture
def project(tmp_path):
    """A directory with something to check in it."""
    source = tmp_path / "project"
    (source / "src").mkdir(parents=True)
    (source / "src" / "adding.py").write_text("def add(a, b):\n    return a + b\n")
    (source / "check.py").write_text("from src.adding import add\nassert add(1, 2) == 3\nprint('fine')\n")
    (source / "link").symlink_to("check.py")
    return source
