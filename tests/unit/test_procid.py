from __future__ import annotations

import os
import subprocess

from atoll import procid


def process_of(pid):
    return procid.current()._replace(pid=pid, started=procid._started(pid))


def test_this_process_lives():
    assert procid.current().pid == os.getpid()
    assert procid.is_alive(procid.current())


def test_another_start_time_or_boot_is_another_process():
    me = procid.current()
    assert not procid.is_alive(me._replace(started=me.started + 1))
    assert not procid.is_alive(me._replace(boot="another"))


def test_a_killed_process_is_dead_even_before_it_is_reaped():
    child = subprocess.Popen(["sleep", "60"])
    try:
        identity = process_of(child.pid)
        assert procid.is_alive(identity)
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not procid.is_alive(identity)
        child.wait()
    assert not procid.is_alive(identity)
    assert procid._started(child.pid) is None


def test_a_name_with_brackets_and_spaces_does_not_confuse(tmp_path):
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(program), "60"])
    try:
        identity = process_of(child.pid)
        assert identity.started >= procid.current().started
    finally:
        child.kill()
        child.wait()
