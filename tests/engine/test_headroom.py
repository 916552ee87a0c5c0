"""A disk of the host's that gets full: no sandbox loses what it was told is written."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from atoll import DiskFull, Sandbox
from atoll.engine import headroom, launch
from atoll.engine.settings import BirthFailed, code_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and only root has disks of its own in a sandbox")
MEGABYTE = 1 << 20


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A state directory on a file system of 96 MB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=700", "none", tmp_path], check=True)
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path))
    yield tmp_path
    launch.shut_down(str(tmp_path))
    subprocess.run(["umount", "-l", tmp_path], check=True)


def fill(directory, left, name="filler"):
    """Leave only so many bytes."""
    found = os.statvfs(directory)
    with open(directory / name, "ab") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - left)


def write(sandbox, megabytes, name="file"):
    code = f"dd if=/dev/urandom of={name} bs=1M count={megabytes} conv=fsync"
    return sandbox.run(["sh", "-c", f"{code} && cksum < {name}"], check=False)


def test_a_write_that_the_host_has_no_room_for_fails_inside(small):
    with Sandbox.create("jail") as sandbox:
        before = write(sandbox, 4, "before")
        assert before.success
        fill(small, 24 * MEGABYTE)
        wait_until_held_back(sandbox)
        done = write(sandbox, 50)
        assert not done.success
        assert "No space left on device" in done.stderr
        assert sandbox.run(["sh", "-c", "cat file before > /dev/null && cksum < before"]).stdout == before.stdout
        assert headroom.spare(str(small)) >= 0, "what is kept for the host is still there"
        sandbox.run("rm -f file")
        with pytest.raises(DiskFull):
            sandbox.files.write("large", bytes(50 * MEGABYTE))
        os.truncate(small / "filler", 0)
        wait_until_held_back(sandbox, held=False)
        assert write(sandbox, 8).success, "there is room again"


def wait_until_held_back(sandbox, *, held=True):
    """The keeper looks now and then."""
    until = time.monotonic() + 60
    while True:
        free = int(sandbox.run("df --output=avail -B1M . | tail -1").stdout)
        if (free < 20) is held:
            return
        assert time.monotonic() < until
        time.sleep(0.05)


def test_none_is_made_where_it_could_write_nothing(small):
    with Sandbox.create("jail") as sandbox:
        fill(small, 5 * MEGABYTE)
        with pytest.raises(DiskFull, match=r"only [345] MB left"):
            Sandbox.create("jail")
        fill(small, 0, "rest")
        with pytest.raises(DiskFull):
            sandbox.snapshot("full")
        assert sandbox.run("echo on").stdout == "on\n", "and the one that is there goes on"


def test_errors_of_a_full_disk_are_told_as_such():
    assert code_of(OSError(28, "no room"), "sandbox_error") == "disk_full"
    assert code_of(OSError(5, "broken"), "sandbox_error") == "sandbox_error"
    assert code_of(BirthFailed("busy", "busy"), "sandbox_error") == "busy"
