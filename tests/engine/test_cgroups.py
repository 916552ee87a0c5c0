"""Control groups of both versions: what is written where. Version 2 on a directory that looks like one."""

from __future__ import annotations

import os
import signal

import pytest

from atoll.engine.cgroups import Group, Hierarchy, find


@pytest.fixture
def v2(tmp_path):
    parent = tmp_path / "atoll"
    group = parent / "sb-x"
    group.mkdir(parents=True)
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.procs"):
        (group / name).write_text("")
    (group / "memory.current").write_text("4096\n")
    return Group(Hierarchy(2, dict.fromkeys(("memory", "pids", "cpu", "freezer"), str(parent))), "sb-x"), group


def test_version_two_limits_are_written(v2):
    group, directory = v2
    group.limit(1 << 20, 7, 0.25)
    assert (directory / "memory.max").read_text() == str(1 << 20)
    assert (directory / "memory.swap.max").read_text() == "0"
    assert (directory / "pids.max").read_text() == "7"
    assert (directory / "cpu.max").read_text() == "25000 100000"


def test_version_two_usage_is_read(v2):
    group, _ = v2
    assert group.memory_used() == 4096


def test_a_host_without_groups_has_none(tmp_path):
    assert find(str(tmp_path)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="making real control groups needs root")
def test_a_real_group_is_made_limited_joined_and_removed():
    hierarchy = find()
    if hierarchy is None:
        pytest.skip("this host has no writable control groups, even for root")
    group = Group(hierarchy, f"test-{os.getpid()}")
    group.make()
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        group.limit(64 << 20, 5, None)
        group.add(pid)
        assert str(pid) in group.processes()
        assert group.memory_used() >= 0
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        group.remove()
    group.remove()
