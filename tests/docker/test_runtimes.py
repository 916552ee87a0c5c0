"""Other engines and runtimes behind the same driver: Podman, gVisor's runsc, and Docker for who is not root."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

from atoll import Sandbox, Snapshots

from ..conformance.as_user import OtherUser
from ..containers import RUNSC, answers, needs_docker, shared_engine, small_root

needs_podman = pytest.mark.skipif(
    shutil.which("podman") is None or os.geteuid() != 0, reason="needs podman (apt-get install podman), and root"
)


@contextlib.contextmanager
def podman():
    """Podman's service, with a storage of its own; DOCKER_HOST says where it is."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="atp-", dir="/tmp"))
    options = [f"--root={place}/root", f"--runroot={place}/run", "--storage-driver=overlay"]
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{place}/podman.sock"
    with open(place / "log", "wb") as log:
        command = ["podman", *options, "system", "service", "--time=0", os.environ["DOCKER_HOST"]]
        service = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while not answers(place / "podman.sock"):
            assert time.monotonic() < until, (place / "log").read_text()[-2000:]
            time.sleep(0.05)
        yield place
    finally:
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        subprocess.run(["podman", *options, "rm", "-fa"], capture_output=True, check=False)
        service.terminate()
        service.wait(30)
        subprocess.run(["podman", *options, "unshare", "true"], capture_output=True, check=False)
        subprocess.run(["umount", "-l", f"{place}/root/overlay"], capture_output=True, check=False)
        shutil.rmtree(place, ignore_errors=True)


@needs_podman
def test_podman_s_service_is_an_engine_too(tmp_path):
    root = small_root(tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one\n")
    name = "podman-" + os.urandom(4).hex()
    with (
        podman(),
        Sandbox.create("docker", image=root, source=source, preset="full-access", env={"WORD": "given"}) as sandbox,
    ):
        assert sandbox.run("echo $WORD; cat file; echo two > file").stdout == "given\none\n"
        assert sandbox.run_code("x = 41; x + 1").text == "42"
        assert [change.path for change in sandbox.diff()] == ["file"]
        assert sandbox.metrics().memory > 0
        sandbox.pause()
        assert sandbox.refresh().status == "paused"
        sandbox.resume()
        sandbox.snapshot(name)
        with Sandbox.create("docker", snapshot=name) as second:
            assert second.run("cat file").stdout == "two\n"
            assert second.run_code("x").text == "41"
        Snapshots("docker").delete(name)
        sandbox.stop()
        sandbox.resume()
        assert sandbox.run("cat file").stdout == "two\n"
    assert (source / "file").read_text() == "one\n"


@needs_docker
@pytest.mark.skipif(RUNSC is None, reason="needs runsc (apt-get install runsc)")
def test_a_runtime_with_a_kernel_of_its_own_is_asked_for_by_name(monkeypatch):
    with shared_engine():
        monkeypatch.setenv("ATOLL_DOCKER_RUNTIME", "runsc")
        with Sandbox.create("docker", env={"WORD": "given"}) as sandbox:
            assert sandbox.info.walls[0] == "the runtime runsc"
            assert sandbox.run("echo $WORD; uname -r").stdout == "given\n4.4.0\n"
            assert sandbox.run_code("x = 41; x + 1").text == "42"
            sandbox.files.write("large", b"x" * (3 << 20))
            assert len(sandbox.files.read_bytes("large")) == 3 << 20
            with sandbox.start("cat", pty=True) as process:
                process.write("echoed\n")
                assert next(iter(process)).text.startswith("echoed")
            sandbox.stop()
            sandbox.resume()
            assert sandbox.run("wc -c < large").stdout.strip() == str(3 << 20)


@needs_docker
@pytest.mark.skipif(RUNSC is None, reason="needs runsc (apt-get install runsc)")
def test_rules_hold_behind_a_kernel_that_lets_files_take_the_place_of_others(monkeypatch, tmp_path):
    for name in ("locked", "free", "hidden"):
        (tmp_path / name).write_text(f"{name}\n")
    rules = [("**", "write"), ("/locked", "read"), ("/hidden", "none")]
    with shared_engine():
        monkeypatch.setenv("ATOLL_DOCKER_RUNTIME", "runsc")
        with Sandbox.create("docker", source=tmp_path, permissions=rules) as sandbox:
            for name, becomes in (("locked", "locked\n"), ("free", "mine\n")):
                sandbox.run(f"echo mine > mine; mv -f mine {name}")
                assert sandbox.run(["cat", name]).stdout == becomes
            assert not sandbox.run("cat hidden").success
    assert (tmp_path / "free").read_text() == "free\n"


AS_USER = """
import os, pathlib, sys, tempfile
from atoll import Sandbox, Unsupported
source = pathlib.Path(tempfile.mkdtemp()) / "source"
source.mkdir()
(source / "file").write_text("one")
with Sandbox.create("docker", image=sys.argv[1], source=source, preset="full-access") as sandbox:
    assert sandbox.run("cat file; echo two > file; cat file").stdout == "onetwo\\n"
    assert sandbox.run_code("import os; os.getuid()").text == str(os.getuid())
    assert sandbox.info.limits["memory"] == "kernel" and sandbox.info.limits["disk"] == "none"
    twin = sandbox.fork()
    assert twin.run("cat file").stdout == "two\\n"
    twin.destroy()
assert (source / "file").read_text() == "one"
for wishes in ({"resources": {"disk": "16M"}}, {"source": source, "permissions": "agent-safe"}, {"network": "all"}):
    try:
        Sandbox.create("docker", image=sys.argv[1], **wishes)
    except Unsupported as error:
        print("refused:", error)
print("done")
"""


@needs_docker
def test_who_is_not_root_and_may_use_the_engine_has_sandboxes_of_its_own_user(tmp_path):
    with shared_engine() as place, OtherUser() as user:
        image = small_root(tmp_path)
        tar = subprocess.run(["tar", "-C", str(image), "-c", "."], capture_output=True, check=True).stdout
        name = "atoll-test:user"
        subprocess.run(["docker", "import", "-", name], input=tar, capture_output=True, check=True)
        place.chmod(0o755)
        (place / "docker.sock").chmod(0o666)
        try:
            done = user.python("-c", AS_USER, name, DOCKER_HOST=os.environ["DOCKER_HOST"])
        finally:
            place.chmod(0o700)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("refused:") == 3
        assert "where clouds keep their credentials" in done.stdout
        assert done.stdout.endswith("done\n")
