"""When something around gVisor breaks: a typed error with the fix in it, and other sandboxes go on."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from atoll import AtollError, CreateFailed, Sandbox, SandboxGone, Unsupported, WallUnavailable
from atoll.drivers import gvisor_health, gvisor_limits, gvisor_runtime
from atoll.engine import cgroups
from atoll.home import state_dir
from atoll.testing.waiting import eventually

from ..runsc import left_of, needs_runsc, processes_of

pytestmark = needs_runsc


@pytest.fixture(scope="module")
def neighbour():
    """One that nothing of what happens here has to do with."""
    with Sandbox.create("gvisor", lifetime=600) as sandbox:
        yield sandbox
        assert sandbox.run("echo unharmed").stdout == "unharmed\n"


@pytest.fixture
def boxes(neighbour):
    """What is there of sandboxes is the same after the test as before."""
    place = os.path.join(state_dir(), "gvisor")
    before = {name for name in os.listdir(place) if name.startswith("gvisor-")}
    yield
    assert {name for name in os.listdir(place) if name.startswith("gvisor-")} == before


def pretend(tmp_path, monkeypatch, run, version="release-20240101.0", platforms="ptrace"):
    """Have a runsc that says it is of a version, and does something else than to run."""
    program = tmp_path / "runsc"
    program.write_text(
        f"""#!/bin/sh
for word in "$@"; do case "$word" in
--version) echo "runsc version {version}"; exit 0;;
platforms) echo {platforms}; exit 0;;
run) {run};;
esac; done
"""
    )
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("ATOLL_RUNSC", str(program))
    return program


def test_without_runsc_the_hint_is_the_command_that_installs_it(monkeypatch, tmp_path, boxes):
    monkeypatch.setenv("ATOLL_RUNSC", str(tmp_path / "runsc"))
    with pytest.raises(WallUnavailable, match="needs it") as caught:
        Sandbox.create("gvisor")
    assert caught.value.hint == "Run: apt-get install runsc"
    (layer,) = [layer for layer in gvisor_health.layers() if layer.name == "runsc"]
    assert not layer.ready
    assert "apt-get install runsc" in layer.fix


def test_one_that_is_too_old_is_named_with_its_version(monkeypatch, tmp_path, boxes):
    program = pretend(tmp_path, monkeypatch, "exit 1", version="release-20190304.0")
    with pytest.raises(WallUnavailable, match=r"release-20190304\.0, which is too old: 20221219") as caught:
        Sandbox.create("gvisor")
    assert str(program) in str(caught.value)
    assert "newer" in caught.value.hint


def test_one_that_does_not_start_at_all_is_told(monkeypatch, tmp_path, boxes):
    program = tmp_path / "runsc"
    program.write_text("#!/bin/sh\necho broken library >&2; exit 127\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("ATOLL_RUNSC", str(program))
    with pytest.raises(WallUnavailable, match="broken library"):
        Sandbox.create("gvisor")


def test_what_runsc_says_when_it_cannot_run_is_in_the_error(monkeypatch, tmp_path, boxes):
    pretend(tmp_path, monkeypatch, "echo 'creating container: no such device' >&2; exit 128")
    with pytest.raises(CreateFailed, match="no such device"):
        Sandbox.create("gvisor")


def test_a_platform_that_it_has_not_is_refused_with_those_that_it_has(monkeypatch, boxes):
    monkeypatch.setenv("ATOLL_GVISOR_PLATFORM", "steam")
    with pytest.raises(WallUnavailable, match=r"'steam'.*ptrace") as caught:
        Sandbox.create("gvisor")
    assert "ATOLL_GVISOR_PLATFORM" in caught.value.hint
    assert not gvisor_health.layers()[0].ready


def test_the_best_platform_is_chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("ATOLL_GVISOR_PLATFORM", raising=False)
    pretend(tmp_path, monkeypatch, "exit 1", platforms="kvm ptrace systrap")
    assert gvisor_runtime.find().platform() == "systrap"
    pretend(tmp_path, monkeypatch, "exit 1", platforms="ptrace")
    assert gvisor_runtime.find().platform() == "ptrace"


def test_a_kernel_that_would_work_on_files_itself_is_told_not_to_where_it_has_a_source(tmp_path, monkeypatch, boxes):
    """Only its gofer is among the mounts that hold the rules."""
    (tmp_path / "source").mkdir()
    log = tmp_path / "log"
    program = pretend(tmp_path, monkeypatch, "exit 1")
    older = program.read_text().replace("#!/bin/sh", f'#!/bin/sh\necho "$@" >> {log}')
    newer = older.replace("run)", "flags) echo '  -directfs' >&2; exit 0;;\nrun)")
    source = {"source": tmp_path / "source", "preset": "full-access"}
    for text, wishes, told in ((newer, source, True), (newer, {}, False), (older, source, False)):
        program.write_text(text)
        log.write_text("")
        with pytest.raises(CreateFailed):
            Sandbox.create("gvisor", **wishes)
        assert ("--directfs=false" in log.read_text()) == (told and os.geteuid() == 0)
        assert " run " in log.read_text()


@pytest.mark.parametrize("wish", [{"network": "host"}, {"image": "/"}, {"audit": True}])
def test_what_it_cannot_honour_is_refused_before_anything_starts(wish, boxes):
    with pytest.raises(Unsupported):
        Sandbox.create("gvisor", **wish)


def test_a_killed_steward_leaves_nothing_that_runs(neighbour):
    sandbox = Sandbox.create("gvisor", lifetime=600)
    sandbox.run("sleep 1000 & disown 2>/dev/null; echo", check=True)
    assert processes_of(sandbox)["runsc-sandbox"]
    os.kill(sandbox._core._record.handle.data["pid"], signal.SIGKILL)
    eventually(lambda: not processes_of(sandbox), "all of it is dead")
    with pytest.raises(SandboxGone):
        sandbox.run("true")
    sandbox.destroy()
    assert left_of(sandbox) == []


def test_a_sandbox_that_was_killed_behind_our_back_is_gone_and_says_why(neighbour):
    sandbox = Sandbox.create("gvisor", lifetime=600)
    for pid in processes_of(sandbox)["runsc-sandbox"]:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(SandboxGone, match="runsc"):
        sandbox.run("true")
    assert sandbox.refresh().status == "gone"
    eventually(lambda: left_of(sandbox) == [], "all of it is gone")
    sandbox.destroy()


def test_who_gets_beyond_all_memory_is_ended_by_the_kernel_and_the_reason_is_told(neighbour):
    sandbox = Sandbox.create("gvisor", lifetime=600, resources={"memory": "64M"})
    # The guest would end the process first; so it is held.
    hold = "import os; os.kill(1, 19); held = bytearray(2 << 30)"
    with pytest.raises(SandboxGone, match="memory was full"):
        sandbox.run(["python3", "-c", hold], timeout=60)
    sandbox.destroy()
    assert left_of(sandbox) == []


def test_a_full_disk_is_an_error_of_the_command_and_nobody_else_s(neighbour):
    with Sandbox.create("gvisor", lifetime=600, resources={"disk": "8M"}) as sandbox:
        done = sandbox.run("head -c 32M /dev/zero > large; ls; rm large; echo small > small && cat small")
        assert done.stdout == "large\nsmall\n"
        assert "No space left" in done.stderr
    assert neighbour.run("head -c 32M /dev/zero > large; rm large", check=True).success


BOMB = "f() { f & f & }; f; while :; do f; done"


def answers(sandbox):
    """Whether it does, as soon as nothing of a bomb is left; one that has ended is an error at once."""
    try:
        return sandbox.run("echo usable").stdout == "usable\n"
    except SandboxGone:
        raise
    except AtollError:
        return False  # it has no process left


def test_bombs_one_after_the_other_end_without_the_sandbox(neighbour):
    """What gVisor needs of the host for each is more than for the last; the fifth was the last one once."""
    with Sandbox.create("gvisor", resources={"pids": 48}) as sandbox:
        for _ in range(10):
            with contextlib.suppress(AtollError):  # the guest may have no process left to answer with
                sandbox.run(BOMB, timeout=1.0)
            eventually(lambda: answers(sandbox), "it is usable again")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandboxes need not have a control group")
def test_who_needs_too_many_tasks_of_the_host_is_ended_and_the_reason_is_told(neighbour):
    with Sandbox.create("gvisor", resources={"pids": 200}) as sandbox:
        group = cgroups.Group(cgroups.find(), sandbox.id)
        assert sandbox.run("for i in 1 2 3 4 5; do sleep 0.1 & done; wait; echo all").stdout == "all\n"
        group.limit_processes(group.count() + 20)
        with pytest.raises(SandboxGone, match="more tasks of the host"):
            sandbox.run("i=0; while [ $i -lt 150 ]; do sleep 60 & i=$((i+1)); done; wait", timeout=60)


def test_a_sandbox_takes_no_more_tasks_of_the_host_than_it_needs_nor_a_large_part_of_them():
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        every = int(file.read())
    assert 4000 <= gvisor_limits.most_tasks(48) <= max(4000, every // 4) + 512
    assert gvisor_limits.most_tasks(10) < gvisor_limits.most_tasks(48)
    assert gvisor_limits.most_tasks(every) == every * 24 + 512


def test_one_whose_runsc_does_not_answer_tells_its_status_and_is_destroyed(tmp_path, monkeypatch, boxes):
    """Hostile code can have gVisor's kernel take long to say what runs in it."""
    busy, real = tmp_path / "busy", gvisor_runtime.find().path
    program = tmp_path / "runsc"
    program.write_text(
        f"""#!/bin/sh
for word in "$@"; do [ "$word" != ps ] || {{ echo > {busy}; sleep 100; }}; done
exec {real} "$@"
"""
    )
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("ATOLL_RUNSC", str(program))
    sandbox = Sandbox.create("gvisor", lifetime=600)
    with ThreadPoolExecutor() as pool:
        measured = pool.submit(sandbox.metrics)
        eventually(busy.exists, "it is asked what runs")
        began = time.monotonic()
        assert sandbox.refresh().status == "running"
        sandbox.destroy()
        assert time.monotonic() - began < 10
        with pytest.raises(AtollError):
            measured.result()
    eventually(lambda: left_of(sandbox) == [], "nothing is left of it")
