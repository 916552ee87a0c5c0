from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from atoll import (
    AtollError,
    Busy,
    CreateFailed,
    InvalidInput,
    Sandbox,
    SandboxGone,
    SandboxNotFound,
    UnknownDriver,
    Unsupported,
)
from atoll.store import shared


def in_another_process(program):
    done = subprocess.run(
        [sys.executable, "-c", f"from atoll import Sandbox\n{program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


def path_of(sandbox):
    return sandbox._core._record.handle.data["box"]


def keeper_of(sandbox):
    return sandbox._core._record.handle.data["pid"]


def test_a_sandbox_has_an_id_a_driver_labels_and_info(make):
    sandbox = make(labels={"team": "red"}, timeout=5, lifetime=100)
    assert sandbox.id
    assert sandbox.driver == "fake"
    assert dict(sandbox.labels) == {"team": "red"}
    info = sandbox.info
    assert (info.status, info.spec.timeout, info.walls) == ("running", 5, ())
    assert set(info.limits.values()) == {"none"}
    assert 0 < info.expires - time.time() <= 100
    assert sandbox.id in repr(sandbox)


def test_a_with_block_destroys_it_with_all_that_runs_in_it():
    with Sandbox.create("fake") as sandbox:
        pid = sandbox.start("sleep 1010.5").pid
        path = path_of(sandbox)
        assert os.path.isdir(path)
    assert not os.path.exists(path)
    assert not os.path.exists(f"/proc/{pid}/exe")
    with pytest.raises(SandboxGone, match="it was destroyed"):
        sandbox.run("true")
    with pytest.raises(SandboxGone):
        sandbox.files.read("x")
    assert sandbox.info.status == "gone"
    sandbox.destroy()
    with pytest.raises(SandboxNotFound):
        Sandbox.connect(sandbox.id)


def test_a_with_block_destroys_it_when_its_body_fails():
    with pytest.raises(RuntimeError), Sandbox.create("fake") as sandbox:
        raise RuntimeError
    assert sandbox.info.status == "gone"
    assert not os.path.exists(path_of(sandbox))


def test_another_process_finds_it_by_id_and_by_label(make):
    sandbox = make(labels={"name": "shared", "n": "1"})
    sandbox.files.write("x", "from here")
    program = f"""
one = Sandbox.connect({sandbox.id!r})
print(one.files.read("x"), one.labels["n"])
print(Sandbox.find({{"name": "shared"}}).run("cat x").stdout)
print(Sandbox.find({{"name": "shared", "n": "2"}}))
one.files.write("x", "from there")
"""
    assert in_another_process(program) == "from here 1\nfrom here\nNone\n"
    assert sandbox.files.read("x") == "from there"


def test_it_outlives_the_process_that_made_it():
    name = in_another_process("print(Sandbox.create('fake', labels={'kind': 'orphan'}).id)").strip()
    with Sandbox.connect(name) as sandbox:
        assert sandbox.run("echo alive").stdout == "alive\n"
        assert [info.id for info in Sandbox.list({"kind": "orphan"})] == [name]
    assert Sandbox.list({"kind": "orphan"}) == []


def test_listing_filters_by_label_driver_and_status(make):
    one, two = make(labels={"set": "l", "n": "1"}), make(labels={"set": "l", "n": "2"})
    assert [info.id for info in Sandbox.list({"set": "l"})] == [two.id, one.id]
    assert [info.id for info in Sandbox.list({"set": "l", "n": "1"})] == [one.id]
    assert [info.id for info in Sandbox.list({"set": "l"}, driver="fake")] == [two.id, one.id]
    assert Sandbox.list({"set": "l"}, driver="jail") == []
    two.pause()
    assert [info.id for info in Sandbox.list({"set": "l"}, status="paused")] == [two.id]
    assert [info.id for info in Sandbox.list({"set": "l"}, status="running")] == [one.id]
    with pytest.raises(InvalidInput, match="status"):
        Sandbox.list(status="tired")


def test_an_unknown_id_is_not_found_and_an_unknown_driver_is_unknown():
    with pytest.raises(SandboxNotFound, match="sb-nothing"):
        Sandbox.connect("sb-nothing")
    with pytest.raises(InvalidInput):
        Sandbox.connect(None)
    with pytest.raises(UnknownDriver, match="fake"):
        Sandbox.create("faek")
    with pytest.raises(InvalidInput, match="empty"):
        Sandbox.find({})


def test_the_lifetime_ends_it_and_the_listing_tells_once_why(make, eventually):
    sandbox = make(lifetime=0.5, labels={"kind": "short"})
    path = path_of(sandbox)
    eventually(lambda: not os.path.exists(path))
    told = Sandbox.list({"kind": "short"})
    assert [(info.id, info.status, info.reason) for info in told] == [(sandbox.id, "gone", "its lifetime is over")]
    assert Sandbox.list({"kind": "short"}) == []
    with pytest.raises(SandboxGone, match="its lifetime is over"):
        sandbox.run("true")


def test_connecting_to_one_that_has_ended_says_why_and_sweeps_up(make, eventually):
    sandbox = make(lifetime=0.4)
    eventually(lambda: not os.path.exists(path_of(sandbox)))
    with pytest.raises(SandboxGone, match="its lifetime is over"):
        Sandbox.connect(sandbox.id)
    with pytest.raises(SandboxNotFound):
        Sandbox.connect(sandbox.id)


def test_a_lifetime_can_be_made_longer_or_shorter(make, eventually):
    lifetime = 1.0
    while True:
        sandbox = make(lifetime=lifetime)
        try:
            sandbox.set_lifetime(100)
            break
        except SandboxGone:  # a busy machine took longer to make it than it lives
            assert lifetime < 60
            lifetime *= 4
    assert sandbox.info.expires > time.time() + 90
    assert Sandbox.connect(sandbox.id).info.expires == sandbox.info.expires
    deadline = time.monotonic() + lifetime + 0.2
    while time.monotonic() < deadline:
        assert sandbox.run("true").success
    sandbox.set_lifetime(0.1)
    eventually(lambda: not os.path.exists(path_of(sandbox)))
    for bad in (0, -1, float("inf"), "long", None):
        with pytest.raises(InvalidInput):
            sandbox.set_lifetime(bad)


def test_the_keepers_death_is_noticed_told_and_swept_up(make, eventually):
    sandbox = make(labels={"kind": "killed"})
    sandbox.run("true")
    os.kill(keeper_of(sandbox), signal.SIGKILL)
    with pytest.raises(SandboxGone, match="its keeper is gone"):
        eventually(lambda: sandbox.run("sleep 0.05") is None)
    assert [(info.status, info.reason) for info in Sandbox.list({"kind": "killed"})] == [("gone", "its keeper is gone")]
    assert not os.path.exists(path_of(sandbox))
    assert Sandbox.list({"kind": "killed"}) == []


def test_the_guests_death_in_the_middle_of_a_command_is_the_end(make):
    sandbox = make()
    with pytest.raises(SandboxGone):
        sandbox.run("kill -9 $PPID; sleep 1000")
    with pytest.raises(SandboxGone):
        sandbox.run("true")


def test_destroying_it_elsewhere_ends_what_runs_here(make):
    sandbox = make()
    output = sandbox.stream("echo ready; sleep 1000")
    next(output)
    in_another_process(f"Sandbox.connect({sandbox.id!r}).destroy()")
    with pytest.raises(SandboxGone, match="it was destroyed"):
        next(output)
    with pytest.raises(SandboxGone, match="it was destroyed"):
        sandbox.run("true")
    assert sandbox.refresh().status == "gone"


def test_a_paused_one_says_so_and_resumes(make):
    sandbox = make()
    sandbox.files.write("x", "kept")
    process = sandbox.start("echo ready; read x; echo got $x")
    assert process.read(20).text == "ready\n"
    sandbox.pause()
    assert sandbox.info.status == "paused"
    for attempt in (lambda: sandbox.run("true"), lambda: sandbox.files.read("x"), lambda: sandbox.run_code("1")):
        with pytest.raises(Busy, match=r"is paused.*resume\(\)"):
            attempt()
    other = Sandbox.connect(sandbox.id)
    assert other.info.status == "paused"
    other.resume()
    assert sandbox.files.read("x") == "kept"
    assert sandbox.info.status == "running"
    process.write("it\n")
    assert process.wait(20).stdout == "got it\n"


def test_a_stopped_one_keeps_its_files_and_starts_again(make):
    sandbox = make(labels={"kind": "stopped"}, env={"WORD": "w"})
    sandbox.files.write("x", "kept")
    sandbox.start("sleep 1011.5")
    sandbox.run_code("y = 1")
    sandbox.stop()
    sandbox.stop()
    with pytest.raises(Busy, match=r"is stopped.*resume\(\)"):
        sandbox.run("true")
    with pytest.raises(Busy):
        sandbox.pause()
    assert [info.status for info in Sandbox.list({"kind": "stopped"})] == ["stopped"]
    other = Sandbox.connect(sandbox.id)
    with pytest.raises(Busy, match="stopped"):
        other.files.read("x")
    sandbox.resume()
    assert (sandbox.files.read("x"), sandbox.run("echo $WORD").stdout) == ("kept", "w\n")
    assert other.run("cat x").stdout == "kept"
    assert sandbox.run_code("y").text == "1"
    assert not any("1011.5" in process.command for process in sandbox.processes())


def test_a_stopped_one_can_be_destroyed(make):
    sandbox = make()
    sandbox.stop()
    path = path_of(sandbox)
    assert os.path.isdir(path)
    sandbox.destroy()
    assert not os.path.exists(path)


def at_once(calls):
    """What each of these calls raised, made by threads that start together."""
    raised = []
    start = threading.Barrier(len(calls))

    def work(call):
        start.wait(20)
        try:
            call()
        except AtollError as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_many_may_destroy_one_sandbox_at_once(make):
    sandbox = make()
    connected = [Sandbox.connect(sandbox.id) for _ in range(8)]
    assert at_once([each.destroy for each in connected]) == []
    assert not os.path.exists(path_of(sandbox))
    sandbox.destroy()
    with pytest.raises(SandboxNotFound):
        Sandbox.connect(sandbox.id)


def test_many_may_stop_one_sandbox_at_once(make):
    sandbox = make()
    sandbox.files.write("x", "kept")
    connected = [Sandbox.connect(sandbox.id) for _ in range(8)]
    assert at_once([each.stop for each in connected]) == []
    assert [each.info.status for each in connected] == ["stopped"] * 8
    sandbox.resume()
    assert sandbox.files.read("x") == "kept"


@pytest.mark.parametrize("change", ["destroy", "stop"])
def test_who_comes_too_late_to_end_a_sandbox_is_content(make, monkeypatch, change):
    """The driver says that it is gone, since somebody ended it between the look at it and the request."""
    sandbox = make()
    record = sandbox._core._record
    honest = getattr(record.driver, change)

    async def late(handle):
        await honest(handle)
        raise SandboxGone("The sandbox ended before it answered.")

    monkeypatch.setattr(record.driver, change, late)
    getattr(sandbox, change)()
    assert sandbox.info.status == {"destroy": "gone", "stop": "stopped"}[change]


def test_stopping_one_that_is_gone_says_so(make):
    sandbox = make()
    Sandbox.connect(sandbox.id).destroy()
    with pytest.raises(SandboxGone):
        sandbox.stop()


def test_idle_links_that_died_with_a_restart_elsewhere_are_replaced(make):
    sandbox = make()
    sandbox.run("true")
    assert sandbox._core._links._idle
    in_another_process(f"one = Sandbox.connect({sandbox.id!r}); one.stop(); one.resume()")
    assert sandbox.run("echo alive").stdout == "alive\n"


def test_metrics_are_measured_from_outside(make):
    sandbox = make()
    with sandbox.start("sleep 1000"):
        metrics = sandbox.metrics()
    assert metrics.uptime > 0
    assert metrics.processes >= 2


def test_refresh_sees_what_others_changed(make):
    sandbox = make()
    in_another_process(f"one = Sandbox.connect({sandbox.id!r}); one.set_lifetime(5000); one.pause()")
    assert sandbox.info.status == "running"
    info = sandbox.refresh()
    assert info == sandbox.info
    assert info.status == "paused"
    assert info.expires > time.time() + 4000
    sandbox.resume()


def test_a_source_is_copied_in_and_never_changed(make, tmp_path):
    (tmp_path / "x").write_text("original")
    sandbox = make(source=tmp_path, preset="full-access")
    sandbox.files.write("x", "changed")
    assert (tmp_path / "x").read_text() == "original"
    with pytest.raises(CreateFailed):
        make(source=tmp_path / "missing", preset="full-access")


def test_a_wall_without_rules_does_not_show_a_source_by_default(make, tmp_path):
    for wishes in ({}, {"preset": "agent-safe"}, {"permissions": [("**", "read")]}):
        with pytest.raises(Unsupported, match='Say preset="full-access"'):
            make(source=tmp_path, **wishes)


def test_the_workdir_is_where_things_start(make):
    sandbox = make(workdir="/code/here")
    assert sandbox.run("basename $PWD").stdout == "here\n"
    sandbox.files.write("x", "")
    assert [entry.path for entry in sandbox.files.list()] == ["/code/here/x"]


@pytest.mark.parametrize(
    "wishes",
    [{"strict": True}, {"resources": {"memory": "1G"}}, {"image": "/"}, {"network": "all"}, {"gpu": "any"}],
)
def test_what_the_fake_cannot_honour_it_refuses_and_leaves_nothing(wishes):
    before = len(Sandbox.list())
    with pytest.raises(Unsupported):
        Sandbox.create("fake", **wishes)
    assert len(Sandbox.list()) == before


def test_a_registry_that_fails_takes_the_sandbox_with_it(monkeypatch, eventually):
    paths = []

    def refuse(self, *row):
        paths.append(row[5].data["box"])
        raise AtollError("the registry is full")

    monkeypatch.setattr("atoll.store.Store.add", refuse)
    with pytest.raises(AtollError, match="the registry is full"):
        Sandbox.create("fake")
    monkeypatch.undo()
    eventually(lambda: not os.path.exists(paths[0]))
    assert Sandbox.list() == []


def test_an_interrupt_after_it_was_written_down_takes_it_away_again(monkeypatch):
    """As Ctrl-C between the registry's row and the return of create would."""
    from atoll.drivers.fake import FakeDriver

    def interrupted(self, handle, info):
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeDriver, "describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Sandbox.create("fake", labels={"kind": "interrupted"})
    monkeypatch.undo()
    assert shared().find({"kind": "interrupted"}) == []


def test_a_maker_that_is_killed_before_it_wrote_it_down_leaves_nothing(eventually):
    program = """
import os, signal
from atoll.store import Store
def die(self, *row):
    print(row[5].data["box"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
Store.add = die
Sandbox.create("fake")
"""
    done = subprocess.run(
        [sys.executable, "-c", f"from atoll import Sandbox\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    path = done.stdout.strip()
    assert path
    eventually(lambda: not os.path.exists(path))


def test_many_at_once_get_one_sandbox(eventually):
    labels = {"kind": "one-for-all"}
    found, errors = [], []

    def get():
        try:
            found.append(Sandbox.get_or_create(labels, "fake", timeout=30).id)
        except AtollError as error:
            errors.append(error)

    program = "print(Sandbox.get_or_create({'kind': 'one-for-all'}, 'fake', timeout=30).id)"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", f"from atoll import Sandbox\n{program}"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found += [other.communicate(timeout=60)[0].strip() for other in others]
    try:
        assert errors == []
        assert len(found) == 7
        assert len(set(found)) == 1
        assert [info.id for info in Sandbox.list(labels)] == [found[0]]
    finally:
        Sandbox.connect(found[0]).destroy()


def test_get_or_create_makes_a_new_one_when_the_old_has_ended(eventually):
    labels = {"kind": "phoenix"}
    first = Sandbox.get_or_create(labels, "fake")
    os.kill(keeper_of(first), signal.SIGKILL)
    eventually(lambda: first.refresh().status == "gone")
    with Sandbox.get_or_create(labels, "fake") as second:
        assert second.id != first.id
        assert Sandbox.get_or_create(labels, "fake").id == second.id
        assert [info.id for info in Sandbox.list(labels)] == [second.id]


def test_get_or_create_that_fails_lets_the_next_one_try():
    labels = {"kind": "second-chance"}
    with pytest.raises(Unsupported):
        Sandbox.get_or_create(labels, "fake", strict=True)
    with Sandbox.get_or_create(labels, "fake") as sandbox:
        assert dict(sandbox.labels) == labels


def test_a_row_whose_driver_is_not_installed_is_listed_with_the_reason(make):
    sandbox = make(labels={"kind": "foreign"})
    store = shared()
    row = store.get(sandbox.id)
    store.add("other-1", "nowhere", "running", row.labels, row.spec, row.handle, row.created, row.expires)
    try:
        told = {info.id: info for info in Sandbox.list({"kind": "foreign"})}
        assert "cannot be loaded" in told["other-1"].reason
        assert told[sandbox.id].reason is None
    finally:
        store.remove("other-1")


def test_the_registry_holds_no_secret_beyond_what_a_new_process_needs(make):
    sandbox = make(env={"TOKEN": "secret-of-the-sandbox"})
    kept = sandbox._core._record.handle.data
    assert set(kept) == {"box", "limits", "pid", "started", "walls"}
    assert "secret-of-the-sandbox" not in json.dumps(kept)
