"""When something around containers breaks: a typed error with the fix in it, and other sandboxes go on."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from atoll import CreateFailed, DiskFull, DriverMissing, Sandbox, SandboxGone, WallUnavailable, store
from atoll.drivers import docker_jobs
from atoll.drivers.docker_container import description
from atoll.drivers.docker_engine import Engine, Refused, Unreachable
from atoll.drivers.docker_orphans import is_kept, sweep
from atoll.errors import AtollError
from atoll.testing.waiting import eventually

from ..containers import Daemon, needs_docker, shared_engine, small_root

pytestmark = needs_docker


@pytest.fixture(scope="module", autouse=True)
def place():
    with shared_engine() as place:
        yield place


@pytest.fixture(scope="module")
def engine(place):
    return Engine(str(place / "docker.sock"))


@pytest.fixture(scope="module")
def neighbour():
    """One that nothing of what happens here has to do with."""
    with Sandbox.create("docker", lifetime=600) as sandbox:
        yield sandbox
        assert sandbox.run("echo unharmed").stdout == "unharmed\n"


def health(monkeypatch, **env):
    from atoll.io import BlockingIO
    from atoll.registry import load

    for name, value in env.items():
        monkeypatch.setenv(name, value)
    coroutine = load("docker", BlockingIO()).health()
    try:
        coroutine.send(None)
    except StopIteration as done:
        return {layer.name: layer for layer in done.value}
    raise AssertionError("it waits")


def test_an_engine_that_does_not_run_is_named_with_the_command_that_starts_it(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(WallUnavailable, match="not running") as caught:
        Sandbox.create("docker")
    assert "systemctl start docker" in caught.value.hint
    layer = health(monkeypatch)["engine"]
    assert not layer.ready
    assert "systemctl start docker" in layer.fix


def test_a_healthy_engine_is_told_layer_by_layer(monkeypatch):
    layers = health(monkeypatch)
    assert all(layer.ready for layer in layers.values() if layer.required)
    assert {"engine", "seccomp", "limits", "default image", "disk limit in the kernel"} <= layers.keys()
    assert all(layer.fix for layer in layers.values() if not layer.ready)


def test_an_engine_on_another_machine_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(WallUnavailable, match="another machine") as caught:
        Sandbox.create("docker")
    assert "DOCKER_HOST" in caught.value.hint


def test_who_may_not_talk_to_the_engine_is_told_how_to(engine):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chmod(os.path.dirname(engine.path), 0o755)
        os.setgid(61236)
        os.setuid(61236)
        try:
            Engine(engine.path).get("/version")
        except Unreachable as error:
            os.write(writer, error.fix.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        assert "usermod -aG docker" in pipe.read()
    os.waitpid(pid, 0)
    os.chmod(os.path.dirname(engine.path), 0o700)


def test_an_image_that_the_engine_does_not_have_is_not_pulled():
    with pytest.raises(WallUnavailable, match="no image 'no-such-image:1'") as caught:
        Sandbox.create("docker", image="no-such-image:1")
    assert caught.value.hint == "Run: docker pull no-such-image:1"


def test_a_runtime_that_the_engine_does_not_have_is_named(monkeypatch):
    monkeypatch.setenv("ATOLL_DOCKER_RUNTIME", "no-such-runtime")
    with pytest.raises(WallUnavailable, match="no-such-runtime") as caught:
        Sandbox.create("docker")
    assert "ATOLL_DOCKER_RUNTIME" in caught.value.hint
    assert not health(monkeypatch)["runtime asked for"].ready


def test_without_the_package_the_hint_says_how_to_get_it():
    source = pathlib.Path(__file__).parents[2] / "src"
    code = (
        f"import sys; sys.path.append({str(source)!r})\n"
        "from atoll.io import BlockingIO\nfrom atoll.registry import load\n"
        "try: load('docker', BlockingIO())\n"
        "except Exception as error: print(type(error).__name__, error.hint)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{DriverMissing.__name__} Run: pip install 'atoll[docker]'\n"


def test_a_container_that_was_removed_behind_our_back_is_gone_and_says_so(engine, neighbour):
    sandbox = Sandbox.create("docker", labels={"fault": "removed"})
    engine.delete(f"/containers/atoll-{sandbox.id}", force=True)
    eventually(lambda: sandbox.refresh().status == "gone", "its end is noticed")
    with pytest.raises(SandboxGone, match="removed behind"):
        sandbox.run("true")
    sandbox.destroy()
    assert neighbour.run("echo on").stdout == "on\n"


def test_a_guest_that_is_killed_takes_its_sandbox_with_it_and_is_told_of(engine):
    sandbox = Sandbox.create("docker")
    first = engine.get(f"/containers/atoll-{sandbox.id}/json")["State"]["Pid"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: sandbox.refresh().status == "gone", "its end is noticed")
    with pytest.raises(SandboxGone, match="ended with 137"):
        sandbox.run("true")
    sandbox.destroy()
    assert is_gone(engine, sandbox)


def is_gone(engine, sandbox):
    try:
        engine.get(f"/containers/atoll-{sandbox.id}/json")
    except Refused as error:
        return error.status == 404
    return False


def test_a_full_disk_is_an_error_of_the_file_and_the_sandbox_goes_on(neighbour):
    with Sandbox.create("docker", resources={"disk": "16M"}) as sandbox:
        with pytest.raises(DiskFull):
            sandbox.files.write("large", b"x" * (32 << 20))
        sandbox.files.write("small", "fits")
        assert sandbox.run("cat small").stdout == "fits"
    assert neighbour.run("echo on").stdout == "on\n"


def test_who_takes_too_much_memory_is_killed_and_the_sandbox_goes_on(neighbour):
    with Sandbox.create("docker", resources={"memory": "128M"}) as sandbox:
        done = sandbox.run_code("x = 1\nhoard = [b'x' * (1 << 20) for _ in range(1000)]")
        assert not done.success
        assert sandbox.run_code("1 + 1").text == "2"
    assert neighbour.run("echo on").stdout == "on\n"


def test_a_killed_steward_s_container_is_found_and_removed(engine):
    home = os.environ["ATOLL_HOME"]
    sandbox = Sandbox.create("docker", labels={"fault": "orphan"})
    with Sandbox.create("docker") as living:
        os.kill(store.shared().get(sandbox.id).handle.data["pid"], signal.SIGKILL)
        eventually(lambda: sandbox.refresh().status == "gone", "its end is noticed")
        # A process that is killed closes its socket a moment before the directory that it has claimed.
        eventually(lambda: not is_kept(f"{home}/docker/{sandbox.id}"), "its claim ends")
        # The other sandbox's steward sweeps now and then, too, and may be at it.
        assert sweep(engine, home) in ([sandbox.id], [])
        eventually(lambda: is_gone(engine, sandbox), "its container is removed")
        assert living.run("echo on").stdout == "on\n"
    assert Sandbox.find({"fault": "orphan"}) is None
    assert not os.path.exists(f"{home}/docker/{sandbox.id}")


@pytest.fixture
def daemon():
    """An engine of this test's own, and DOCKER_HOST as before at the end."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="atf-", dir="/tmp"))
    made = Daemon(place, "--live-restore")
    before = os.environ["DOCKER_HOST"]
    os.environ["DOCKER_HOST"] = f"unix://{place}/docker.sock"
    try:
        yield made.start().await_ready()
    finally:
        os.environ["DOCKER_HOST"] = before
        made.end()


def test_a_sandbox_outlives_a_crash_of_the_engine_and_its_streams_go_on(daemon, tmp_path):
    sandbox = Sandbox.create("docker", image=small_root(tmp_path))
    stream = sandbox.stream("echo before; while ! test -e go; do sleep 0.1; done; echo after")
    assert next(stream).text == "before\n"
    daemon.kill(signal.SIGKILL)
    assert sandbox.run("echo still here").stdout == "still here\n"
    with pytest.raises(WallUnavailable, match="not running"):
        Sandbox.create("docker", image=small_root(tmp_path))
    daemon.start().await_ready()
    assert sandbox.run("echo again").stdout == "again\n"
    sandbox.files.write("go", "now")
    assert [chunk.text for chunk in stream] == ["after\n"]
    sandbox.destroy()
    assert is_gone(Engine(str(daemon.socket)), sandbox)


def test_an_engine_that_ends_its_containers_ends_their_sandboxes_which_say_so(daemon, tmp_path):
    sandbox = Sandbox.create("docker", image=small_root(tmp_path), labels={"fault": "ended"})
    engine = Engine(str(daemon.socket))
    for container in engine.get("/containers/json"):
        engine.post(f"/containers/{container['Id']}/kill")
    daemon.kill()
    eventually(lambda: sandbox.refresh().status == "gone", "its end is noticed")
    with pytest.raises(SandboxGone, match=r"engine was stopped|ended with 137"):
        sandbox.run("true")
    daemon.start().await_ready()
    sandbox.destroy()
    with Sandbox.create("docker", image=small_root(tmp_path)) as another:
        assert another.run("echo works").stdout == "works\n"
    assert engine.get("/containers/json", all=True) == []


@pytest.mark.parametrize(
    ("missing", "weaker"),
    [
        ("Seccomp_filters", {"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}),
        ("before it was ready", {"SecurityOpt": []}),  # without no_new_privs nobody may load a filter
        ("CapBnd", {"CapDrop": []}),
        ("pid namespace", {"PidMode": "host"}),
    ],
)
def test_an_engine_that_leaves_out_a_part_of_the_wall_is_refused(engine, monkeypatch, missing, weaker):
    def described(plan):
        body = description(plan)
        return {**body, "HostConfig": {**body["HostConfig"], **weaker}}

    monkeypatch.setattr(docker_jobs, "description", described)
    before = len(engine.get("/containers/json", all=True))
    with pytest.raises((WallUnavailable, CreateFailed), match=missing):
        Sandbox.create("docker")
    assert len(engine.get("/containers/json", all=True)) == before


def test_a_create_that_the_engine_refuses_leaves_nothing(engine, tmp_path):
    home = os.environ["ATOLL_HOME"]
    before = set(os.listdir(f"{home}/docker"))
    (tmp_path / "root" / "usr").mkdir(parents=True)
    with pytest.raises(AtollError):
        Sandbox.create("docker", image=tmp_path / "root", workdir="/proc/x")
    with pytest.raises(AtollError):
        Sandbox.create("docker", source="/there/is/no/such/directory", preset="full-access")
    assert set(os.listdir(f"{home}/docker")) - before <= {".importing", ".swept", ".disks"}


def test_the_status_is_told_while_the_engine_takes_its_time(daemon, tmp_path):
    sandbox = Sandbox.create("docker", image=small_root(tmp_path))
    with daemon.stopped():
        pausing = threading.Thread(target=sandbox.pause)
        pausing.start()
        eventually(lambda: Sandbox.connect(sandbox.id).info.status == "paused", "the engine is asked to")
        assert pausing.is_alive(), "the control: it has not answered"
    pausing.join(60)
    assert not pausing.is_alive()
    sandbox.resume()
    assert sandbox.run("echo on").stdout == "on\n"
    sandbox.destroy()
