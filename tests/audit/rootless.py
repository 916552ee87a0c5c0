"""Run by `test_rootless.py` as an ordinary user."""

from __future__ import annotations

import pytest

from atoll import FileDenied, Sandbox, Unsupported


def test_the_kernel_tells_only_root():
    with pytest.raises(Unsupported, match="audit=True needs root"):
        Sandbox.create(audit=True)
    assert Sandbox.list() == []


def test_the_file_api_is_heard_by_everybody():
    with Sandbox.create() as box:
        assert box.info.audit == ("files", "gate")
        box.run("mkdir shut && chmod 000 shut", check=True)
        with pytest.raises(FileDenied):
            box.files.read("shut/f")
        box.run("cat shut/f")
        assert [(each.source, each.path) for each in box.audit()] == [("files", "shut/f")]
