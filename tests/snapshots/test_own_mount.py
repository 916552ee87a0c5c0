"""A state directory on a file system of its own, as a partition for /home is: disks are found by what they are on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from atoll import Sandbox, Snapshots
from atoll.engine.launch import stop_helpers
from atoll.home import state_dir
try:
    with Sandbox.create(sys.argv[1], source=sys.argv[2], preset="full-access") as box:
        box.run("echo one > file", check=True)
        box.snapshot("one")
        box.run("echo two > file", check=True)
        assert [each.path for each in box.diff()] == ["file"]
        box.rollback("one")
        assert box.files.read("file") == "one\\n"
        box.stop()
        box.resume()
        assert box.files.read("file") == "one\\n"
    Snapshots(driver=sys.argv[1]).delete("one")
finally:
    stop_helpers(state_dir())
"""


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts file systems, and has disks of the kernel's")
@pytest.mark.parametrize("driver", ["jail", "bwrap"])
def test_snapshots_work_where_the_state_directory_is_a_mount(driver, tmp_path):
    home, source = tmp_path / "home", tmp_path / "source"
    home.mkdir()
    source.mkdir()
    # The mount is in a namespace that ends with the last process in it.
    mounted = 'mount -t tmpfs -o mode=700,size=1G state "$ATOLL_HOME" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", PROGRAM, driver, str(source)]
    done = subprocess.run(
        command, env={**os.environ, "ATOLL_HOME": str(home)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
