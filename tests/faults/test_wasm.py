"""What breaks under a wasm sandbox: each fault is told with what to do, others go on, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from atoll import Sandbox, SandboxGone, Unsupported, WallUnavailable
from atoll.drivers import wasm_runtime
from atoll.engine import cgroups, usage
from atoll.home import state_dir
from atoll.testing.waiting import eventually

pytestmark = pytest.mark.timeout(900)
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(wasm_runtime.__file__))))


@pytest.fixture
def make():
    made = []

    def one(**wishes):
        made.append(Sandbox.create("wasm", lifetime=600, **wishes))
        return made[-1]

    yield one
    for sandbox in made:
        sandbox.destroy()


def steward_of(sandbox):
    return sandbox._core._record.handle.data["pid"]


def guest_of(sandbox):
    return usage.children(steward_of(sandbox))[0]


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}") and not usage.is_zombie(pid)


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_without_the_packages_the_error_says_what_to_install():
    """A Python that has atoll and nothing else."""
    code = f"import sys; sys.path.append({SOURCE!r})\nfrom atoll import Sandbox\nSandbox.create('wasm')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=False, capture_output=True, text=True)
    assert "DriverMissing" in done.stderr
    assert "pip install 'atoll[wasm]'" in done.stderr


def test_health_starts_nothing_and_says_how_to_get_what_is_missing():
    code = (
        f"import sys; sys.path.append({SOURCE!r})\nfrom atoll.drivers import wasm_health\n"
        "print([(layer.name, layer.ready, layer.fix) for layer in wasm_health.layers()][0])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(("Python", False, "pip install 'atoll[wasm]'"))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wasm_runtime.find.cache_clear()
    yield tmp_path / "atoll" / "wasm"
    wasm_runtime.find.cache_clear()


def test_a_cache_that_others_write_to_is_not_used(own_cache):
    own_cache.mkdir(parents=True)
    own_cache.chmod(0o777)
    with pytest.raises(WallUnavailable, match="others can write") as caught:
        Sandbox.create("wasm")
    assert "chmod 700" in caught.value.hint


def test_compiled_code_that_is_damaged_is_told_and_not_run(own_cache, make):
    other = make_elsewhere(make)
    runtime = wasm_runtime.find()
    os.makedirs(runtime.lib)
    with open(runtime.module, "wb") as file:
        file.write(b"\x7fELF nothing of the kind")
    with pytest.raises(WallUnavailable, match="did not start") as caught:
        Sandbox.create("wasm")
    assert runtime.home in caught.value.hint
    assert other.run_code("1 + 1").text == "2"


def make_elsewhere(make):
    """A sandbox of the usual cache."""
    own = os.environ.pop("XDG_CACHE_HOME")
    wasm_runtime.find.cache_clear()
    try:
        return make()
    finally:
        os.environ["XDG_CACHE_HOME"] = own
        wasm_runtime.find.cache_clear()


def test_a_disk_without_room_for_the_compiled_code_is_told(own_cache):
    if os.getuid() != 0:
        pytest.skip("needs uid 0, to mount a small disk")
    own_cache.parent.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M,mode=700", "none", own_cache.parent], check=True)
    try:
        runtime = wasm_runtime.find()
        os.makedirs(os.path.dirname(runtime.home), exist_ok=True)
        with pytest.raises(WallUnavailable, match="compiled") as caught:
            wasm_runtime.compiled(runtime, lambda draft: shutil.copyfile(runtime.library, f"{draft.lib}/library"))
        assert "450 MB" in caught.value.hint
        assert not [name for name in os.listdir(os.path.dirname(runtime.home)) if name.endswith(".draft")]
    finally:
        subprocess.run(["umount", own_cache.parent], check=True)


def test_the_death_of_a_context_is_told_and_another_takes_its_place(make):
    broken, other = make(), make()
    broken.run_code("lost = 1")
    (context,) = usage.children(guest_of(broken))
    os.kill(context, signal.SIGKILL)
    eventually(lambda: not is_alive(context), "it is dead")
    assert broken.run_code("'lost' in globals()").text == "False"
    assert other.run_code("1 + 1").text == "2"


def test_a_trap_is_told_and_tells_nothing_of_the_host(make):
    sandbox = make()
    done = sandbox.run_code("import os; os.abort()", timeout=60)
    assert (done.error.name, done.state_lost) == ("ContextDied", True)
    assert "WebAssembly stopped" in done.stderr
    assert "/" not in done.stderr
    assert sandbox.run_code("1 + 1").text == "2"


def test_the_death_of_a_guest_is_told_and_takes_all_with_it(make):
    broken, other = make(), make()
    broken.run_code("1")
    contexts = usage.children(guest_of(broken))
    os.kill(guest_of(broken), signal.SIGKILL)
    eventually(lambda: broken.refresh().status == "gone", "its end is seen")
    with pytest.raises(SandboxGone, match="signal 9 ended its guest"):
        broken.run_code("1")
    eventually(lambda: not any(map(is_alive, contexts)), "its contexts are dead")
    assert other.run_code("1 + 1").text == "2"


def test_the_death_of_a_steward_takes_all_with_it(make):
    broken, other = make(), make()
    broken.run_code("1")
    below = usage.descendants(steward_of(broken))
    os.kill(steward_of(broken), signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, below)), "what it kept is dead")
    assert other.run_code("1 + 1").text == "2"
    broken.destroy()
    assert not os.path.exists(f"{state_dir()}/wasm/{broken.id}")
    hierarchy = cgroups.find()
    groups = set() if hierarchy is None else {f"{parent}/{broken.id}" for parent in hierarchy.parents.values()}
    assert [path for path in groups if os.path.exists(path)] == []


def test_the_warm_process_may_die_at_any_time(make):
    before = make()
    warm = parent_of(steward_of(before))
    os.kill(warm, signal.SIGKILL)
    eventually(lambda: not is_alive(warm), "it is dead")
    after = make()
    assert (before.run_code("1 + 1").text, after.run_code("1 + 1").text) == ("2", "2")


def test_what_was_made_ahead_ends_with_the_warm_process(make):
    used = make()
    warm = parent_of(steward_of(used))
    taken = {steward_of(used), *usage.descendants(steward_of(used))}
    eventually(
        lambda: len(set(usage.descendants(warm)) - taken - {warm}) >= 6, "two are made ahead, with all of theirs"
    )
    ahead = set(usage.descendants(warm)) - taken - {warm}
    os.kill(warm, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, ahead)), "they are dead")
    assert used.run_code("1 + 1").text == "2"


def test_many_sandboxes_one_after_the_other_leave_nothing(make):
    make().run_code("1")
    hierarchy = cgroups.find()
    opened = len(os.listdir("/proc/self/fd"))
    names = []
    for _ in range(25):
        with Sandbox.create("wasm", lifetime=600) as sandbox:
            names.append(sandbox.id)
            assert sandbox.run_code("x = bytearray(1 << 20); open('f', 'wb').write(x)").text == str(1 << 20)
    assert [name for name in names if os.path.exists(f"{state_dir()}/wasm/{name}")] == []
    parents = () if hierarchy is None else set(hierarchy.parents.values())
    assert [name for parent in parents for name in names if os.path.exists(f"{parent}/{name}")] == []
    assert len(os.listdir("/proc/self/fd")) <= opened


def test_a_full_memory_is_told_and_the_sandbox_goes_on(make):
    sandbox, other = make(resources={"memory": "160M"}), make()
    full = sandbox.run_code("x = bytearray(400 << 20); len(x)", timeout=60)
    assert full.error.name in ("MemoryError", "OutOfMemory")
    assert sandbox.run_code("len(bytearray(8 << 20))").text == str(8 << 20)
    assert other.run_code("1").text == "1"


def test_a_full_disk_is_told_and_the_sandbox_goes_on(make):
    sandbox, other = make(resources={"disk": "16M"}), make()
    full = sandbox.run_code("open('big', 'wb').write(bytes(64 << 20))", timeout=60)
    assert not full.success
    sandbox.files.remove("big")
    eventually(lambda: sandbox.run_code("open('small', 'w').write('works')").text == "5", "it is usable again")
    assert other.run_code("1").text == "1"


@pytest.mark.parametrize("wish", [{"network": "all"}, {"network": "host"}, {"image": "x"}, {"packages": ["six"]}])
def test_what_cannot_be_honoured_is_refused_before_anything_starts(wish):
    with pytest.raises(Unsupported):
        Sandbox.create("wasm", **wish)


def test_nothing_of_this_process_is_in_any_of_its_own(make, monkeypatch):
    monkeypatch.setenv("ATOLL_TEST_SECRET", "not for you")
    with open("/etc/hostname", "rb") as held:
        os.set_inheritable(held.fileno(), True)
        sandbox = make()
        sandbox.run_code("1")
        for pid in usage.descendants(steward_of(sandbox)):
            with open(f"/proc/{pid}/environ", "rb") as file:
                assert b"not for you" not in file.read()
            held_there = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            assert "/etc/hostname" not in held_there
