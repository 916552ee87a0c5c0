"""What the tests of gVisor share."""

from __future__ import annotations

import glob
import os

import pytest

from atoll.drivers import gvisor_runtime
from atoll.errors import WallUnavailable


def _missing():
    try:
        gvisor_runtime.find()
    except WallUnavailable as error:
        return str(error)
    return ""


needs_runsc = pytest.mark.skipif(bool(_missing()), reason=f"{_missing()} CI has it: apt-get install runsc busybox")


def processes_of(sandbox):
    """The pids on this machine that have the id of a sandbox on their command line, by the name of their program."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(sandbox.id.encode() in word for word in words):
            found.setdefault(os.path.basename(words[0].decode()), []).append(int(path.split("/")[2]))
    return found


def left_of(sandbox):
    """Everything that there still is of a sandbox outside of its files."""
    groups = glob.glob(f"/sys/fs/cgroup/*/atoll/{sandbox.id}") + glob.glob(f"/sys/fs/cgroup/**/atoll/{sandbox.id}")
    disks = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path, encoding="utf-8") as file:
                disks += [path for line in file if sandbox.id in line]
        except OSError:
            continue
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line for line in file if sandbox.id in line]
    return [*processes_of(sandbox).items(), *groups, *disks, *mounts]
