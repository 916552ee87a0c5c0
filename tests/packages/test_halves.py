"""A package that cannot be imported ahead, where nothing is writable, is imported by a cell as if nobody had tried."""

from __future__ import annotations

import time

import pytest

from atoll import Sandbox
from atoll.testing import wheels

# As matplotlib does it: a submodule first, then something to write to, then the submodule by its attribute.
_WANTS_TO_WRITE = """\
import sys
from wants_to_write import part as _part
open("/workspace/cache", "w").close()
where = sys.modules[__name__].part.NAME
"""


def test_a_package_that_failed_halfway_ahead_works_in_a_cell(tmp_path, monkeypatch):
    files = {
        "wants_to_write/__init__.py": _WANTS_TO_WRITE,
        "wants_to_write/part.py": "NAME = 1",
        "zz_last.py": "",
    }
    wheels.make(tmp_path, "wants-to-write", files)
    wheels.use_only(tmp_path, monkeypatch)
    for _ in range(200):
        with Sandbox.create("jail", packages=["wants-to-write"]) as sandbox:
            ahead = sandbox.run_code("import sys; 'zz_last' in sys.modules").text == "True"
            done = sandbox.run_code("import wants_to_write; wants_to_write.where")
            assert (done.text, done.error) == ("1", None)
        if ahead:
            return
        time.sleep(0.05)
    pytest.fail("nothing was ever imported ahead")
