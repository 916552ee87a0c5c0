"""Packages are imported ahead, behind a wall, and sandboxes are forked from there."""

from __future__ import annotations

import os
import time

import pytest

from atoll import Sandbox
from atoll.testing import wheels

SECONDS = 30


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """One package for all tests, so that it is built and imported once."""
    place = tmp_path_factory.mktemp("wheels")
    wheels.make(place, "nursed", {"nursed.py": "import os\nPID = os.getpid()\nCOUNT = []\nA = 1\n"})
    with pytest.MonkeyPatch.context() as patch:
        wheels.use_only(place, patch)
        yield place


@pytest.fixture
def preloaded():
    """Makes sandboxes that end with the test, once their packages are imported ahead."""
    made = []

    def one(module, *packages, **wishes):
        deadline = time.monotonic() + SECONDS
        while True:
            sandbox = Sandbox.create("jail", packages=packages, **wishes)
            if sandbox.run_code(f"import sys; {module!r} in sys.modules").text == "True":
                made.append(sandbox)
                return sandbox
            sandbox.destroy()
            assert time.monotonic() < deadline, "it is never imported ahead"
            time.sleep(0.05)

    yield one
    for each in made:
        each.destroy()


def test_packages_are_imported_before_anybody_asks(index, preloaded):
    sandbox = preloaded("nursed", "nursed")
    code = "import nursed as i, os; i.COUNT.append(1); (i.PID, os.getpid() > 1, i.COUNT)"
    assert sandbox.run_code(code).text == "(1, True, [1])", "imported by the first process of another namespace"
    assert sandbox.run_code(code, context="another").text == "(1, True, [1])"
    other = preloaded("nursed", "nursed")
    assert other.run_code(code).text == "(1, True, [1])", "nothing of one sandbox is in another"


WALL = """
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
got = [status[name].split() for name in ("Uid", "Gid", "Groups", "CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")]
got += [open("/proc/self/cgroup").read().split(), len(__import__("os").listdir("/proc/self/fd"))]
got
"""


def test_the_wall_is_that_of_any_other_sandbox(index, preloaded):
    sandbox = preloaded("nursed", "nursed")
    with Sandbox.create("jail") as plain:
        assert sandbox.info.walls == plain.info.walls
        plain.run_code("1")
        mine, other = sandbox.run_code(WALL), plain.run_code(WALL)
        assert mine.error is None
        assert mine.text == other.text
        listing = (
            "ls -A / /proc/1 /dev /dev/shm /dev/pts; cat /proc/sys/user/max_user_namespaces; hostname; ip -o link; id"
        )
        assert sandbox.run(listing).stdout == plain.run(listing).stdout
        first = "import os; sorted(n for n in os.listdir('/proc') if n.isdigit())[:1]"
        assert sandbox.run_code(first).text == plain.run_code(first).text == "['1']"


def test_files_processes_and_limits_are_the_sandbox_s_own(index, preloaded):
    one = preloaded("nursed", "nursed", resources={"memory": "64M"}, env={"WORD": "x"})
    two = preloaded("nursed", "nursed")
    one.run("echo secret > /tmp/a; echo secret > ~/a; echo secret > a; sleep 1000 &", check=True)
    assert two.run("cat /tmp/a ~/a a; pgrep sleep").stdout == ""
    assert one.run("cat /tmp/a ~/a a").stdout == "secret\n" * 3
    assert one.run_code("import os; os.environ['WORD']").text == "'x'"
    assert not one.run_code("x = b'1' * (200 << 20)").success
    assert two.run_code("x = b'1' * (200 << 20)").success
    assert one.metrics().processes >= 2


def test_a_source_tree_goes_with_it(index, preloaded, tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    (source / "file").write_text("text")
    sandbox = preloaded("nursed", "nursed", source=source, preset="full-access", resources={"disk": "64M"})
    assert sandbox.run("cat file; echo more >> file; echo new > new; cat file new").stdout == "texttextmore\nnew\n"
    assert [(path.name, path.read_text()) for path in source.iterdir()] == [("file", "text")]
    assert sandbox.run("dd if=/dev/zero of=big bs=1M count=100").exit_code != 0


def test_it_ends_and_leaves_nothing(index, preloaded):
    sandbox = preloaded("nursed", "nursed")
    pid = sandbox._core._record.handle.data["pid"]
    word = "word-" + os.urandom(8).hex()
    sandbox.start(["sh", "-c", "while :; do sleep 1; done", word])
    deadline = time.monotonic() + SECONDS
    while not _running(word):
        assert time.monotonic() < deadline
    sandbox.destroy()
    assert not _running(word)
    deadline = time.monotonic() + SECONDS
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("memory", [128 << 20, 1 << 30], ids=["less", "more"])
def test_limits_are_those_that_were_asked_for_and_not_those_of_a_parked_one(index, preloaded, memory):
    sandbox = preloaded("nursed", "nursed", resources={"memory": memory})
    fill = "data = bytearray(300 << 20); data[::4096] = b'x' * len(data[::4096]); len(data) >> 20"
    done = sandbox.run_code(fill)
    assert (done.text == "300") == (memory > 300 << 20), done
    assert sandbox.run_code("'alive'").text == "'alive'"


def test_stop_resume_pause_and_lifetime_work(index, preloaded):
    sandbox = preloaded("nursed", "nursed")
    sandbox.files.write("kept", "kept")
    sandbox.pause()
    assert sandbox.refresh().status == "paused"
    sandbox.resume()
    sandbox.stop()
    sandbox.resume()
    assert sandbox.run_code("import nursed; (nursed.A, open('kept').read())").text == "(1, 'kept')"


def test_what_cannot_be_imported_or_forked_does_not_matter(index):
    wheels.make(index, "raises", {"raises.py": "raise RuntimeError('no')\n"})
    wheels.make(index, "exits", {"exits.py": "import os; os._exit(3)\n"})
    threads = "import threading, time; threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
    wheels.make(index, "has-threads", {"has_threads.py": threads})
    for name in ("raises", "exits", "has-threads"):
        for _ in range(3):
            with Sandbox.create("jail", packages=[name]) as sandbox:
                assert sandbox.run_code("1 + 1").text == "2"
            time.sleep(0.2)


def _running(word):
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if word.encode() in file.read():
                        return True
            except OSError:
                continue
    return False
