"""Environments are built once, behind a wall, and never half."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from atoll import PackagesFailed, Sandbox
from atoll.errors import InvalidInput, Unsupported
from atoll.home import state_dir
from atoll.packages import cache
from atoll.testing import wheels

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(cache.__file__)))


@pytest.fixture
def index(tmp_path, monkeypatch):
    wheels.use_only(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def create():
    """Makes sandboxes that end with the test."""
    made = []

    def one(*packages, **wishes):
        made.append(Sandbox.create("jail", packages=packages, **wishes))
        return made[-1]

    yield one
    for each in made:
        each.destroy()


def environments():
    place = cache.directory(state_dir())
    return {name for name in os.listdir(place) if not name.endswith(".lock")} if os.path.isdir(place) else set()


def test_an_environment_is_built_once_and_said_so(index, create):
    wheels.make(index, "once-only", {"once_only.py": "A = 1\n"})
    said = []
    create("once-only", on_progress=said.append)
    assert any("Successfully installed once-only" in line for line in said)
    count = len(said)
    assert create("Once_Only", on_progress=said.append).run_code("import once_only; once_only.A").text == "1"
    assert len(said) == count


def test_two_processes_at_once_build_it_once(index, create):
    wheels.make(index, "at-once", {"at_once.py": "A = 1\n"})
    code = (
        "from atoll import Sandbox\n"
        "with Sandbox.create('jail', packages=['at-once'], on_progress=print) as sandbox:\n"
        "    print(sandbox.run_code('import at_once; at_once.A').text)\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=100)[0] for process in started]
    assert all(text.endswith("1\n") for text in said)
    assert sum("Successfully installed" in text for text in said) == 1


def test_a_failing_install_says_why_and_keeps_nothing(index, create):
    wheels.make(index, "present", {"present.py": ""}, version="1.0")
    before = environments()
    with pytest.raises(PackagesFailed, match=r"No matching distribution found for absent") as caught:
        create("absent")
    assert caught.value.code == "packages_failed"
    with pytest.raises(PackagesFailed, match=r"present==2\.0.*from versions: 1\.0"):
        create("present==2.0")
    assert environments() == before
    assert create("present").run_code("import present").success


def test_a_build_is_refused_rather_than_shown_the_password_of_a_proxy(index, create, monkeypatch):
    tell = "import os, sys; open(sys.prefix + '/told', 'w').write(repr(sorted(os.environ.items())))\n"
    wheels.make(index, "curious", {"curious.pth": tell, "curious.py": ""})
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    told = create("curious").run("cat /packages/told").stdout
    assert "PATH" in told, "its code ran while it was installed"
    assert "secret" not in told, "and a build without a network needs no proxy"
    # Source is fetched by who builds it.
    monkeypatch.setenv("PIP_NO_BINARY", "another")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{index} http://127.0.0.1:9/")
    with pytest.raises(Unsupported, match="HTTPS_PROXY has a password"):
        create("curious")
    monkeypatch.setenv("ATOLL_PACKAGES_NETWORK", "host")
    monkeypatch.setenv("ATOLL_PACKAGES_PROXY", "http://me:known@127.0.0.1:9")
    told = create("curious").run("cat /packages/told").stdout
    assert "me:known@127.0.0.1:9" in told
    assert "secret" not in told


def test_a_build_that_is_killed_counts_for_nothing(index, create):
    wheels.make(index, "killed", {"killed.py": "A = 1\n"})
    # A build backend would be the honest way to take long; a slow one is a source archive, so this holds the pipe.
    code = (
        "import sys, time\nfrom atoll import Sandbox\n"
        "def stay(line):\n    print(line, flush=True)\n    time.sleep(1000)\n"
        "Sandbox.create('jail', packages=['killed'], on_progress=stay)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert "killed" in process.stdout.readline()
    drafts = {name for name in environments() if ".draft." in name}
    assert drafts, "it was at work"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert create("killed").run_code("import killed; killed.A").text == "1"
    assert not drafts & environments(), "what it left is swept up"


def test_the_workshop_ends_with_its_builder(index):
    """It is in no registry, so it must not outlive the process that made it."""
    from atoll.io import BlockingIO, drive
    from atoll.registry import load
    from atoll.types import Spec

    driver = load("jail", BlockingIO())
    code = (
        "import sys\nfrom atoll.io import BlockingIO, drive\nfrom atoll.registry import load\n"
        "from atoll.types import Spec\n"
        "driver = load('jail', BlockingIO())\nhandle = drive(driver.workshop(Spec(workdir='/packages'), []))\n"
        "print(handle.id, flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = process.stdout.readline().strip()
    box = pathlib.Path(state_dir(), "jail", "boxes", name)
    assert box.exists()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while box.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    handle = drive(driver.workshop(Spec(workdir="/packages"), []))
    assert drive(driver.status(handle)) == "running"
    drive(driver.destroy(handle))
    assert drive(driver.status(handle)) == "gone"


def test_hostile_names_and_links_stay_in_the_tree(index, create, tmp_path_factory):
    """The install runs inside, so a wheel can do there what it likes; what comes out must not."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("secret")
    wheels.make(index, "climber", {"climber.py": "", "../../../../../../../../tmp/climbed": "x"})
    try:
        create("climber")
    except PackagesFailed:
        pass  # pip itself refuses the name; that is fine too
    assert not os.path.exists("/tmp/climbed")
    wheels.make(
        index,
        "linker",
        {
            "linker.pth": f"import os; os.path.exists('/packages/x') or os.symlink({str(outside)!r}, '/packages/x')\n",
            "linker.py": "",
        },
    )
    sandbox = create("linker")
    assert sandbox.run(["cat", "/packages/x/secret"]).exit_code != 0
    assert (outside / "secret").read_text() == "secret"


def test_a_pth_file_runs_in_the_wall_and_nowhere_else(index, create, tmp_path):
    mark = tmp_path / "ran"
    line = (
        "import os; os.makedirs('/tmp/ran', exist_ok=True); "
        f"os.path.isdir({str(tmp_path)!r}) and open({str(mark)!r}, 'w')\n"
    )
    wheels.make(index, "path-file", {"path_file.pth": line, "path_file.py": "A = 1\n"})
    sandbox = create("path-file")
    assert sandbox.run(["python3", "-c", "import path_file"]).exit_code == 0
    assert sandbox.run("ls -d /tmp/ran").exit_code == 0, "the control: it does run inside"
    assert not mark.exists()


def test_packages_and_an_image_do_not_go_together(tmp_path, create):
    (tmp_path / "usr").mkdir()
    with pytest.raises(Unsupported, match="image="):
        create("numpy", image=tmp_path)


def test_the_place_of_packages_is_no_workdir(create):
    with pytest.raises(InvalidInput, match="where the packages are"):
        create("numpy", workdir="/packages")


def test_an_environment_in_use_is_not_removed(index, create):
    wheels.make(index, "in-use", {"in_use.py": "A = 1\n"})
    sandbox = create("in-use")
    environment = cache.wanted(state_dir(), ("in-use",))
    assert environment.key in {kept.key for kept in cache.listing(state_dir())}
    with cache.in_use(environment):
        assert not cache.remove(environment)
    assert sandbox.run_code("import in_use; in_use.A").text == "1"


def test_source_workdir_and_limits_go_with_packages(index, create, tmp_path_factory):
    wheels.make(index, "together", {"together.py": "A = 1\n"})
    source = tmp_path_factory.mktemp("source")
    (source / "file").write_text("text")
    sandbox = create(
        "together",
        source=source,
        preset="full-access",
        workdir="/app",
        resources={"memory": "256M", "disk": "64M"},
        env={"A": "1"},
    )
    assert (
        sandbox.run_code("import together, os; (open('file').read(), os.environ['A'], together.A)").text
        == "('text', '1', 1)"
    )
