"""The judge finds what is planted: a task that got out, a mount that was left, a keeper that hangs."""

import contextlib
import glob
import os
import queue
import signal
import subprocess
import sys
import time

import pytest
from tests import containers
from tests.attack import attackers, judge, plan
from tests.attack.arena import Arena, Late, Pace, Play, is_own
from tests.attack.report import Report
from tests.attack.walls import WALLS, missing
from tests.escape import residue
from tests.escape.harness import Pending, Refused, eventually

TAG = f"judged{os.getpid()}"
OPTIONS = {"seconds": 1.0, "pids": 64, "threads": 3, "open": 4}
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to plant what only root can")


def host():
    return next(task for task in judge.tasks() if task.pid == os.getpid())


def confined(**changes):
    """A task as those behind the wall are."""
    plain = judge.Task(
        pid=10, tid=10, started=5, name=TAG, state="S", ids=(judge.SANDBOX_IDS[7],) * 8, capabilities=0, seccomp=2,
        no_new_privs=True, depth=2, mounts="mnt:[1]", users="user:[1]", groups="8:pids:/atoll/sb-x\n",
    )  # fmt: skip
    return plain._replace(**changes)


@pytest.mark.parametrize(
    "change",
    [
        {"ids": (0,) * 8}, {"ids": (*(judge.SANDBOX_IDS[7],) * 4, 0, 0, 0, 0)}, {"capabilities": 1}, {"seccomp": 0},
        {"no_new_privs": False}, {"depth": 1}, {"mounts": "mnt:[host]"}, {"users": "user:[host]"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_each_part_of_the_wall_is_missed(change):
    outside = confined(depth=1, mounts="mnt:[host]", users="user:[host]")
    assert judge.weaknesses(confined(), outside, judge.SANDBOX_IDS) == []
    for found in (judge.escaped, judge.misplaced):
        known = TAG if found is judge.escaped else ("sb-x",)
        assert found([confined()], known, outside, judge.SANDBOX_IDS) == []
        assert len(found([confined(**change)], known, outside, judge.SANDBOX_IDS)) == 1


@pytest.mark.parametrize("name", WALLS)
def test_what_a_wall_promises_is_missed_and_nothing_else(name):
    wall = WALLS[name]
    outside = confined(depth=1, mounts="mnt:[host]", users="user:[host]")
    changes = {
        "ids": {"ids": (0,) * 8}, "capabilities": {"capabilities": 1}, "depth": {"depth": 1},
        "mounts": {"mounts": "mnt:[host]"}, "users": {"users": "user:[host]"},
    }  # fmt: skip
    inside = confined(ids=((wall.ids or judge.SANDBOX_IDS)[7],) * 8)
    for what, change in changes.items():
        found = judge.weaknesses(inside._replace(**change), outside, wall.ids or judge.SANDBOX_IDS, wall.shared)
        assert bool(found) == (what not in wall.shared)
    for change in ({"seccomp": 0}, {"no_new_privs": False}):
        assert judge.weaknesses(inside._replace(**change), outside, wall.ids or judge.SANDBOX_IDS, wall.shared)


def test_who_is_trusted_in_a_group_is_only_who_must_be():
    guest = confined(pid=20, parent=5, name="python")
    context = confined(pid=21, parent=20, name="python")
    steward = confined(pid=5, parent=1, name="python", groups="8:pids:/\n")
    seen = [steward, guest, context]
    assert [WALLS["wasm"].trusted(task, seen) for task in (guest, context)] == [True, False]
    waiting, kernel = confined(pid=22, name="runsc"), confined(pid=23, name="exe")
    assert [WALLS["gvisor"].trusted(task, []) for task in (waiting, kernel)] == [True, False]


def test_hostile_code_on_the_host_s_kernel_or_outside_of_its_group_is_found():
    outside = confined(depth=1, mounts="mnt:[host]", users="user:[host]")
    assert judge.escaped([confined()], TAG, outside, judge.SANDBOX_IDS, group="/atoll/") == []
    assert len(judge.escaped([confined()], TAG, outside, judge.SANDBOX_IDS, group="/docker/")) == 1
    assert len(judge.escaped([confined()], TAG, outside, None)) == 1
    assert judge.escaped([confined(name="runsc")], TAG, outside, None) == []


def test_two_sandboxes_with_one_id_are_seen():
    assert judge.shared_ids([confined(), confined(pid=11)]) == {}
    assert judge.shared_ids([confined(), confined(users="user:[2]")]) == {judge.SANDBOX_IDS[7]: 2}


def test_what_is_only_passing_by_does_not_last():
    lasting = judge.Lasting(2.0)
    assert [lasting.look(keys, now) for keys, now in (("ab", 0), ("b", 1), ("ab", 2), ("ab", 3))] == [
        set(), set(), set(), {"b"},
    ]  # fmt: skip


@pytest.mark.skipif("rewrite" not in attackers.KINDS, reason="needs x86-64: the payload is machine code")
def test_who_runs_the_payload_outside_is_found_by_its_name_and_its_marker(tmp_path):
    """The payload itself works: were it ever run with more rights, it would be seen."""
    marker = str(tmp_path / "marker")
    code = f"""
from tests.attack.inside import hopping
hopping._payload({{"tag": {TAG!r}, "marker": {marker!r}}}, 0).finish()()
"""
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            found = eventually(
                lambda: judge.escaped(judge.tasks(), TAG, host(), judge.SANDBOX_IDS), "the judge sees the task"
            )
            eventually(lambda: os.path.exists(marker), "there is a marker")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert "host's pid namespace" in found[0].why


@contextlib.contextmanager
def opened(tmp_path, wall):
    place = tmp_path / "marker"
    made = Arena(plan.Round(0, "root" if os.getuid() == 0 else "user", [], wall), Report(0), str(place))
    made.open()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def arena(tmp_path):
    """A round without any plan, whose sandboxes a test makes."""
    with opened(tmp_path, "jail") as made:
        yield made


@pytest.fixture(params=["docker", "gvisor", "wasm"])
def another(request, tmp_path):
    """The same behind another wall, where it is."""
    if reason := missing(request.param):
        pytest.skip(reason)
    if request.param == "docker":
        request.getfixturevalue("engine")
    with opened(tmp_path, request.param) as made:
        yield made


@pytest.fixture(scope="module")
def engine():
    with containers.shared_engine():
        yield


def found(arena):
    return [each.kind for each in arena.report.violations]


def test_a_round_without_a_fault_has_no_violation(arena):
    box = plan.Box({}, False, [plan.Step("run", {"command": "echo alive"}, 0), plan.Step("destroy", {}, 0)])
    Play(arena, box).run()
    arena.close()
    assert arena.report.violations == []


def test_a_round_behind_another_wall_has_no_violation_either(another):
    another_box = plan.Box({}, False, [plan.Step("run_code", {"code": "1 + 1"}, 0), plan.Step("destroy", {}, 0)])
    Play(another, another_box).run()
    another.close()
    assert another.report.violations == []


def test_a_sandbox_that_is_left_behind_another_wall_is_found(another, monkeypatch):
    id = another.create(plan.Box({}, False, []))
    maker = another._maker
    begin, clean = maker.begin, another.clean
    monkeypatch.setattr(maker, "begin", lambda op, **options: begin("listing" if op == "end" else op, **options))
    for name in ("clean", "_end_warm"):
        monkeypatch.setattr(another, name, lambda: None)
    another.close(patience=0.5)
    monkeypatch.undo()
    maker.restart()
    with pytest.raises(Refused, match="gone"):
        maker.call("connect", id=id)  # which sweeps up what is left of it
    another._end_warm()
    eventually(lambda: not another._left(), "nothing is left")
    maker.leave()
    clean()
    left = " ".join(each.what for each in another.report.violations)
    assert set(found(another)) == {"left over"}
    assert "processes" in left
    assert "files" in left


@needs_root
def test_a_task_that_is_not_behind_another_wall_is_found_in_its_group(another):
    id = another.create(plan.Box({}, False, []))
    (name, *_) = [each for each in another._groups() if another._engine or id in each]
    groups = glob.glob(f"/sys/fs/cgroup/**/{name}", recursive=True)
    if not groups:
        pytest.skip("needs control groups, which this host has none of")
    wall = WALLS[another._round.wall]
    with subprocess.Popen(["sleep", "60"]) as planted:
        for group in groups:
            with contextlib.suppress(OSError), open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(planted.pid))
        # It was started by this process; had it escaped, its parent would be in the group.
        seen = [task._replace(parent=task.pid) if task.pid == planted.pid else task for task in judge.tasks()]
        faults = judge.misplaced(seen, another._groups(), host(), wall.ids, wall.shared, wall.trusted)
        planted.kill()
    assert planted.pid in [fault.task.pid for fault in faults]


def test_a_secret_that_is_read_is_found(another):
    id = another.create(plan.Box({}, False, []))
    another._marker = "/workspace/marker"
    write = f"open('/workspace/marker.secret', 'w').write({another._secret!r})"
    another.ask("run_code", another.begin("run_code", id, code=write), id)
    kind = WALLS[another._round.wall].kinds[-1]
    pending = another.begin_attack({"kind": kind, "seed": 1, "in_context": True, "options": OPTIONS}, id)
    if pending is not None:
        another.listen(another.ask("attack", pending, id), id)
    assert "escape" in found(another)


@needs_root
def test_a_mount_that_is_left_is_found(arena):
    place = f"{arena.state}/left"
    os.mkdir(place)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    try:
        arena.close(patience=0.5)
    finally:
        subprocess.run(["umount", place], check=True)
        arena.clean()
    # In so short a time other things may not have ended yet: they are no fault of this test's.
    assert any(each.kind == "left over" and each.what.startswith("mounts") for each in arena.report.violations)


@needs_root
def test_a_task_without_a_wall_in_a_sandboxs_group_is_found(arena):
    id = arena.create(plan.Box({}, False, []))
    groups = residue.control_groups(id)
    if not groups:
        pytest.skip("needs control groups, which this host has none of")
    with subprocess.Popen(["sleep", "60"]) as planted:
        for group in groups:
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(planted.pid))
        faults = judge.misplaced(judge.tasks(), (id,), host(), judge.SANDBOX_IDS)
        planted.kill()
    assert planted.pid in [fault.task.pid for fault in faults]


def test_a_keeper_that_hangs_is_found(arena, monkeypatch):
    monkeypatch.setitem(plan.DEADLINES, "refresh", 0.3)
    id = arena.create(plan.Box({}, False, []))
    keeper = arena.keeper(id)
    os.kill(keeper, signal.SIGSTOP)
    try:
        with pytest.raises(Late):
            arena.ask("refresh", arena.begin("refresh", id), id)
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert found(arena) == ["no answer"]


def test_only_errors_of_atolls_own_are_refusals():
    assert is_own("Busy", "snapshot")
    assert is_own("SandboxGone", "refresh")
    assert not is_own("Unresponsive", "refresh")
    assert not is_own("Busy", "destroy")
    assert not is_own("InvalidInput", "snapshot")
    assert not is_own("RuntimeError", "snapshot")
    assert not is_own("TimeoutError", "fork")


def test_a_wrong_error_is_told_of(arena):
    id = arena.create(plan.Box({}, False, []))
    with pytest.raises(Refused):
        arena.ask("run", arena.begin("run", id, command="true", nonsense=1), id)
    assert found(arena) == ["wrong error"]


def test_a_seed_is_a_plan():
    assert plan.make(7, 3, ("root", "user")) == plan.make(7, 3, ("root", "user"))
    assert plan.make(7, 3, ("root", "user")) != plan.make(8, 3, ("root", "user"))
    steps = [step for number in range(60) for box in plan.make(7, number, ("root",)).boxes for step in box.steps]
    assert {step.keywords["kind"] for step in steps if step.operation == "attack"} == set(attackers.NATIVE)
    assert {step.operation for step in steps} >= set(plan.OPERATIONS) - {"create", "refresh", "list"}
    first = plan.make(7, 0, ("root",)).boxes[0].steps[0].keywords
    assert attackers.source(first["kind"], first["seed"], TAG, "/m", OPTIONS) == attackers.source(
        first["kind"], first["seed"], TAG, "/m", OPTIONS
    )


def test_every_attacker_begins(arena):
    """In a sandbox where nothing else happens none of them fails: a wall is not praised for what never came."""
    for kind in attackers.NATIVE:
        id = arena.create(plan.Box({"resources": {"pids": 64}}, False, []))
        step = {"kind": kind, "seed": 1, "in_context": True, "options": OPTIONS}
        arena.begin_attack(step, id)
        with contextlib.suppress(Refused):
            arena.ask("destroy", arena.begin("destroy", id), id)
    assert arena.report.failures() == {}


def test_every_attacker_in_webassembly_goes_on_until_its_end(tmp_path):
    if reason := missing("wasm"):
        pytest.skip(reason)
    with opened(tmp_path, "wasm") as arena:
        for kind in attackers.INSTANCE:
            id = arena.create(plan.Box({}, False, []))
            pending = arena.begin_attack({"kind": kind, "seed": 5, "in_context": True, "options": OPTIONS}, id)
            try:
                answer = arena.ask("attack", pending, id)
            except Refused:
                assert kind in ("speak", "lie", "poke")  # they end their own context
            else:
                told = answer["error"]
                assert told is None or told["name"] in ("KeyboardInterrupt", "ContextDied"), (kind, told)
            arena.ask("destroy", arena.begin("destroy", id), id)
    assert arena.report.violations == []


def test_walls_take_turns_and_are_asked_for_nothing_that_they_lack():
    made = [plan.make(7, number, ("root", "user"), ("jail", "docker", "wasm")) for number in range(8)]
    assert [(each.wall, each.user) for each in made[:3]] == [("jail", "root"), ("jail", "user"), ("docker", "root")]
    for each in made:
        steps = [step for box in each.boxes for step in box.steps]
        assert not {step.operation for step in steps} & WALLS[each.wall].lacks
        kinds = {step.keywords["kind"] for step in steps if step.operation == "attack"}
        assert kinds <= set(WALLS[each.wall].kinds)


def test_a_slow_machine_has_longer():
    pace = Pace()
    for slowness in (1.0, 3.0):
        pace.slowness = slowness
        began = time.monotonic()
        with pytest.raises(queue.Empty):
            pace.wait(Pending(), 0.5)
        assert time.monotonic() - began >= 0.5 * slowness
