"""Pause, stop and resume; and what a sandbox is made from and uses."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time
from itertools import pairwise

import pytest

from ...errors import Busy
from ...sync import Sandbox
from ...types import Capability
from ..base import Checks, Make
from ..needs import needs
from ..waiting import eventually

CLOCK = "while :; do read now rest < /proc/uptime; echo $now >> clock; sleep 0.02; done"
PAUSE = 1.0


class RestChecks(Checks):
    """Rest, origin and use."""

    @needs(Capability.COMMANDS, Capability.PAUSE)
    def test_a_paused_sandbox_stands_still_and_then_goes_on(self, make: Make) -> None:
        sandbox = make()
        sandbox.start(CLOCK)
        eventually(lambda: len(_ticks(sandbox)) > 2, "the clock ticks")
        sandbox.pause()
        assert sandbox.refresh().status == "paused"
        time.sleep(PAUSE)
        sandbox.resume()
        assert sandbox.info.status == "running"
        count = len(_ticks(sandbox))
        eventually(lambda: len(_ticks(sandbox)) > count + 2, "the clock ticks again")
        ticks = _ticks(sandbox)
        assert max(after - before for before, after in pairwise(ticks)) > 0.9 * PAUSE

    @needs(Capability.COMMANDS, Capability.PAUSE)
    def test_a_paused_sandbox_says_that_it_is_busy(self, make: Make) -> None:
        sandbox = make()
        sandbox.files.write("x", "kept")
        sandbox.pause()
        with pytest.raises(Busy):
            sandbox.run("true")
        with pytest.raises(Busy):
            Sandbox.connect(sandbox.id).files.read("x")
        sandbox.resume()
        assert sandbox.files.read("x") == "kept"

    @needs(Capability.COMMANDS, Capability.PAUSE)
    def test_pausing_twice_and_resuming_twice_is_harmless(self, make: Make) -> None:
        sandbox = make()
        sandbox.pause()
        sandbox.pause()
        assert sandbox.refresh().status == "paused"
        sandbox.resume()
        sandbox.resume()
        assert sandbox.run("echo awake").stdout == "awake\n"

    @needs(Capability.PAUSE)
    def test_a_paused_sandbox_can_be_destroyed(self, make: Make) -> None:
        sandbox = make()
        sandbox.pause()
        sandbox.destroy()
        assert sandbox.refresh().status == "gone"

    @needs(Capability.COMMANDS, Capability.STOP)
    def test_a_stopped_sandbox_keeps_its_files_and_nothing_else(self, make: Make) -> None:
        sandbox = make()
        sandbox.files.write("deep/down/note", "kept")
        sandbox.start("echo $$ > pid; exec sleep 98765")
        eventually(lambda: sandbox.files.exists("pid"), "the process has begun")
        sandbox.stop()
        assert sandbox.refresh().status == "stopped"
        with pytest.raises(Busy):
            sandbox.run("true")
        sandbox.resume()
        assert sandbox.refresh().status == "running"
        assert sandbox.files.read("deep/down/note") == "kept"
        assert sandbox.run("cat deep/down/note").stdout == "kept"
        assert not [p for p in sandbox.processes() if "98765" in p.command]

    @needs(Capability.COMMANDS, Capability.STOP)
    def test_another_process_resumes_what_was_stopped(self, make: Make) -> None:
        sandbox = make(env={"WORD": "same"})
        sandbox.files.write("note", "kept")
        sandbox.stop()
        body = """
sandbox = Sandbox.connect(id)
status = sandbox.info.status
sandbox.resume()
answer = [status, sandbox.run('echo "$WORD $(cat note)"').stdout]
"""
        assert self.elsewhere(body, id=sandbox.id).answer() == ["stopped", "same kept\n"]
        assert sandbox.refresh().status == "running"
        assert sandbox.run("echo here").stdout == "here\n"

    @needs(Capability.STOP)
    def test_a_stopped_sandbox_can_be_destroyed(self, make: Make, label: dict[str, str]) -> None:
        sandbox = make(labels=label)
        sandbox.stop()
        sandbox.destroy()
        assert sandbox.refresh().status == "gone"
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS, Capability.SOURCE)
    def test_source_is_the_workspace_and_never_changes(self, make: Make, tmp_path: pathlib.Path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "file").write_text("original")
        (tmp_path / "removed").write_text("still there")
        (tmp_path / "tool").write_text("#!/bin/sh\necho works")
        (tmp_path / "tool").chmod(0o755)
        (tmp_path / "link").symlink_to("sub/file")
        sandbox = make(source=tmp_path, preset="full-access")
        assert sandbox.run("cat sub/file link; ./tool", check=True).stdout == "originaloriginalworks\n"
        sandbox.run("echo changed > sub/file; rm removed; echo new > added", check=True)
        assert sandbox.files.read("link") == "changed\n"
        assert not sandbox.files.exists("removed")
        assert (tmp_path / "sub" / "file").read_text() == "original"
        assert (tmp_path / "removed").read_text() == "still there"
        assert sorted(os.listdir(tmp_path)) == ["link", "removed", "sub", "tool"]

    @needs(Capability.COMMANDS, Capability.IMAGE)
    def test_image_is_the_root(self, make: Make, tmp_path: pathlib.Path) -> None:
        root = tmp_path / "root"
        _copy_program("/bin/sh", root)
        _copy_program("/bin/cat", root)
        (root / "marker").write_text("from the image")
        root.chmod(0o755)
        sandbox = make(image=root)
        assert sandbox.run("cat /marker; test -e /usr/bin/env || echo bare").stdout == "from the imagebare\n"
        sandbox.files.write("note", "x")
        assert sandbox.run("cat note").stdout == "x"

    @needs(Capability.COMMANDS, Capability.METRICS)
    def test_metrics_tell_what_it_uses(self, make: Make) -> None:
        sandbox = make()
        before = sandbox.metrics()
        # Several: something of its guest's that was only starting may have been counted before, and be gone.
        process = sandbox.start("sleep 1000 & sleep 1000 & sleep 1000 & wait")
        after = sandbox.metrics()
        assert after.processes is not None
        assert before.processes is not None
        assert after.processes > before.processes
        assert after.uptime >= before.uptime >= 0
        assert before.memory is None or before.memory > 0
        process.kill()


def _ticks(sandbox: Sandbox) -> list[float]:
    if not sandbox.files.exists("clock"):
        return []
    return [float(line) for line in sandbox.files.read("clock").splitlines(keepends=True) if line.endswith("\n")]


def _copy_program(path: str, root: pathlib.Path) -> None:
    """A program of this machine and the libraries that it is linked with."""
    told = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    for needed in [path, *(word for word in told.split() if word.startswith("/"))]:
        target = root / needed.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(needed, target)
