"""Wheels come from a remote index without a network in any sandbox, and nothing of them runs or is unpacked outside."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading

import pytest
from tests.conformance import as_user
from tests.conformance.as_user import OtherUser

from atoll import PackagesFailed, Sandbox
from atoll.engine import landlock
from atoll.packages import reach
from atoll.testing import wheels


class _Asked(http.server.SimpleHTTPRequestHandler):
    """Serves a directory, and remembers who asked: with which password."""

    passwords: list[str | None]

    def __init__(self, *words, passwords, **more):
        self.passwords = passwords
        super().__init__(*words, **more)

    def do_GET(self):
        self.passwords.append(self.headers.get("Authorization"))
        super().do_GET()

    def log_message(self, *words):
        pass


@pytest.fixture
def passwords():
    return []


@pytest.fixture
def index(tmp_path, monkeypatch, passwords):
    """A directory of packages that is served on this machine's loopback, which no sandbox reaches."""
    handler = functools.partial(_Asked, directory=str(tmp_path), passwords=passwords)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wheels.use_only(tmp_path, monkeypatch)
    monkeypatch.setenv("PIP_FIND_LINKS", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield tmp_path
    server.shutdown()
    server.server_close()


def address(index):
    return os.environ["PIP_FIND_LINKS"].strip()


def source_archive(directory, name, mark):
    """A package that has no wheel, and whose setup.py tells that it ran."""
    text = f"open({str(mark)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name={name!r}, version='1.0')\n"
    with tarfile.open(directory / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for path, content in (("setup.py", text), ("PKG-INFO", f"Metadata-Version: 1.0\nName: {name}\nVersion: 1.0\n")):
            info = tarfile.TarInfo(f"{name}-1.0/{path}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content.encode()))


def create(*packages, **wishes):
    return Sandbox.create("jail", packages=packages, **wishes)


class WithoutTools(OtherUser):
    """A user, or root, of a host without the tools of `network="all"`."""

    def _become(self):
        as_user._check(as_user._LIBC.unshare(as_user._NEW_MOUNTS))
        as_user._mount(None, "/", as_user._PRIVATE)
        for path in ("/usr/sbin/nft", "/usr/bin/pasta", "/usr/sbin/ip", "/usr/bin/ip"):
            if os.path.exists(path):
                as_user._mount(os.devnull, path, as_user._BIND)
        super()._become()


SCRIPT = """
import os, shutil
from atoll import PackagesFailed, Sandbox
from atoll.engine import launch
said = []
print([name for name in ("nft", "pasta", "ip") if shutil.which(name, path="/usr/sbin:/usr/bin")])
try:
    with Sandbox.create("jail", packages=["far-away"], on_progress=said.append) as sandbox:
        print(sandbox.run_code("import far_away, far_needed; far_away.A + far_needed.B").text)
        print(sandbox.run("ls /shown /packages", check=False).stdout)
    print([line for line in said if "Successfully" in line])
    print(os.listdir(next(place for place in os.scandir(f"{os.environ['ATOLL_HOME']}/environments") if place.is_dir())))
    try:
        Sandbox.create("jail", packages=["only-source"])
    except PackagesFailed as error:
        print(error)
finally:
    launch.shut_down(os.environ["ATOLL_HOME"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="hides programs, which takes root")
@pytest.mark.parametrize("uid", [0, as_user.USER], ids=["root", "user"])
def test_wheels_need_neither_nft_nor_pasta(index, uid, tmp_path_factory):
    wheels.make(index, "far-away", {"far_away.py": "A = 1\n"}, needs="far-needed")
    wheels.make(index, "far-needed", {"far_needed.py": "B = 2\n"})
    source_archive(index, "only-source", tmp_path_factory.mktemp("mark") / "ran")
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    with WithoutTools(uid) as user:
        done = user.python("-c", SCRIPT, ATOLL_HOME=f"{user._home}/state", **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[]\n3\n"), "the tools are out of sight, and what was installed can be imported"
    assert "'Successfully installed far-away-1.0 far-needed-1.0'" in done.stdout
    assert "['about.json', 'tree']" in done.stdout or "['tree', 'about.json']" in done.stdout, "wheels are not kept"
    assert "That was as wheels; what has none is built in a sandbox with a network" in done.stdout
    assert 'network="all" needs `' in done.stdout, "and the tool is named"


def test_the_installer_has_no_network_and_learns_no_password(index, monkeypatch, passwords):
    tell = (
        "import os, sys, socket; s = socket.socket(); "
        "open(sys.prefix + '/told', 'w').write(repr(sorted(os.environ.items())) + str(sys.argv) "
        "+ str(s.connect_ex(('127.0.0.1', {port}))))\n"
    )
    port = int(address(index).rpartition(":")[2].strip("/"))
    wheels.make(index, "curious-far", {"curious.pth": tell.format(port=port), "curious.py": ""})
    monkeypatch.setenv("PIP_FIND_LINKS", address(index).replace("//", "//me:index-secret@"))
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    with create("curious-far") as sandbox:
        told = sandbox.run("cat /packages/told").stdout
    assert "PATH" in told, "its code ran while it was installed"
    assert "secret" not in told
    assert told.endswith("111"), "connection refused: there is no network"
    assert any(passwords), "and the index was asked with its password"


@pytest.mark.parametrize("way", ["only", "asked", "needed", "git"])
def test_no_code_of_a_package_runs_outside(index, tmp_path_factory, way):
    """What has no wheel is not built on the host, however pip is talked into it."""
    mark = tmp_path_factory.mktemp("mark") / "ran"
    name = f"source-{way}"
    source_archive(index, name, mark)
    archive = f"{address(index)}{name}-1.0.tar.gz"
    needs = {"needed": f"{name} @ {archive}", "git": f"{name} @ git+{address(index)}x.git"}.get(way, "")
    wheels.make(index, f"leads-{way}", {"leads.py": ""}, needs=needs)
    order = {
        "packages": [{"only": name, "asked": f"{name} @ {archive}"}.get(way, f"leads-{way}")],
        "options": [["no-index", "1"], ["find-links", address(index)]],
    }
    done, _ = fetch(order, tmp_path_factory.mktemp("fetched"))
    assert done.returncode != 0
    assert not mark.exists()


def test_the_control_is_that_pip_would_run_it(index, tmp_path_factory):
    mark = tmp_path_factory.mktemp("mark") / "ran"
    source_archive(index, "source-control", mark)
    target = f"source-control @ {address(index)}source-control-1.0.tar.gz"
    words = [sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--no-build-isolation", "--no-deps"]
    subprocess.run([*words, "--dest", str(tmp_path_factory.mktemp("out")), target], capture_output=True, check=False)
    assert mark.exists()


class _Redirecting(http.server.BaseHTTPRequestHandler):
    """Sends whoever comes somewhere else, and remembers the paths."""

    def __init__(self, *words, to, asked):
        self.to, self.asked = to, asked
        super().__init__(*words)

    def do_GET(self):
        self.asked.append(self.path)
        # A list of links, too, which has none.
        self.send_response(200 if self.path == "/" else 302)
        self.send_header("Content-Type", "text/html")
        self.send_header("Location", self.to)
        self.end_headers()

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def redirecting(to):
    """The address of a server, and what it was asked for."""
    asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Redirecting, to=to, asked=asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("way", ["named", "needed", "redirected"])
@pytest.mark.parametrize("closed", [True, False], ids=["attempt", "control"])
def test_no_file_of_the_host_gets_among_the_wheels(index, tmp_path_factory, way, closed):
    """Neither because a package needs it by its address, nor because an index sends pip to it."""
    if closed and not landlock.version():
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path_factory.mktemp("secret")
    wheels.make(secret, "of-the-host", {"of_the_host.py": "KEY = 1\n"})
    wheel = f"file://{secret}/of_the_host-1.0-py3-none-any.whl"
    with redirecting(wheel) as (elsewhere, asked):
        target = f"{elsewhere}/of_the_host-1.0-py3-none-any.whl" if way == "redirected" else wheel
        wheels.make(index, "leads-there", {"leads.py": ""}, needs=f"of-the-host @ {target}")
        # The server of the redirect is one that a setting names; the control's settings name the directory, too.
        links = [address(index), elsewhere, *([] if closed else [str(secret)])]
        order = {
            "packages": [f"of-the-host @ {target}" if way == "named" else "leads-there"],
            "options": [["no-index", "1"], ["find-links", *links]],
        }
        place = tmp_path_factory.mktemp("fetched")
        done, said = fetch(order, place)
    assert any("of_the_host" in path for path in asked) == (way == "redirected"), said
    assert ("of_the_host-1.0-py3-none-any.whl" in os.listdir(place / "wheels")) == (not closed), said
    assert (done.returncode != 0) == closed


@pytest.mark.parametrize("way", ["needed", "redirected"])
@pytest.mark.parametrize("named", [False, True], ids=["attempt", "control"])
def test_nobody_is_asked_whom_a_sandbox_would_not_reach(index, tmp_path_factory, way, named):
    with redirecting("http://127.0.0.1:9/") as (inner, asked), redirecting(f"{inner}/told") as (outer, _):
        target = f"{inner if way == 'needed' else outer}/needed-1.0-py3-none-any.whl"
        wheels.make(index, "asks-there", {"asks.py": ""}, needs=f"needed @ {target}")
        links = [address(index), outer, *([inner] if named else [])]
        order = {"packages": ["asks-there"], "options": [["no-index", "1"], ["find-links", *links]]}
        done, _ = fetch(order, tmp_path_factory.mktemp("fetched"))
    assert done.returncode != 0
    assert bool({"/told", "/needed-1.0-py3-none-any.whl"}.intersection(asked)) == named


@pytest.mark.parametrize(
    ("host", "is_closed"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("0.0.0.0", True), ("169.254.169.254", True), ("::1", True),
        ("::", True), ("100.100.100.200", True), ("fe80::1%eth0", True), ("::ffff:127.0.0.1", True),
        ("fd00:ec2::254", True),
        ("1.1.1.1", False), ("10.0.0.1", False), ("2606:4700::1111", False), ("::ffff:1.1.1.1", False),
    ],
)  # fmt: skip
def test_closed_addresses_are_those_of_the_network_all(host, is_closed):
    assert reach.is_closed(host) == is_closed


def test_no_more_is_fetched_than_the_sandbox_could_hold(index):
    wheels.make(index, "large-one", {"large.py": f"A = {'1' * 20_000_000!r}\n"})
    with Sandbox.create("jail", resources={"disk": "8M"}) as sandbox, pytest.raises(PackagesFailed, match="8 MB"):
        sandbox.install("large-one")


def fetch(order, directory):
    """The process itself, without a sandbox."""
    (directory / "wheels").mkdir()
    (directory / "tmp").mkdir()
    order = {"directory": str(directory), "seconds": 60, "most": None, **order}
    process = subprocess.Popen(
        [sys.executable, "-c", "from atoll.packages.fetch import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(directory / "tmp"), "PIP_CONFIG_FILE": os.devnull},
    )
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    said = process.stdout.read().decode()
    process.stdin.close()
    process.stdout.close()
    process.wait(30)
    return process, said


def test_it_writes_in_its_own_directory_only(tmp_path):
    outside = tmp_path / "outside"
    code = (
        "import os, sys\nfrom atoll.packages import fetch\nfetch.close(sys.argv[1], ('/',))\n"
        "open(sys.argv[1] + '/in', 'w').close()\n"
        "for act in (lambda: os.execv('/bin/true', ['true']), lambda: os.posix_spawn('/bin/true', ['true'], {}),\n"
        "            lambda: open(sys.argv[2], 'w')):\n"
        "    try:\n        act()\n    except PermissionError:\n        print('denied')\n"
    )
    (tmp_path / "own").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "own"), str(outside)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("denied") == (3 if landlock.version() else 2)
    assert (tmp_path / "own" / "in").exists()


def test_it_ends_with_who_wanted_it(tmp_path):
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", "from atoll.packages import fetch; fetch._watch('/nowhere', float('inf'))"],
        stdin=subprocess.PIPE,
    )
    process.stdin.close()
    assert process.wait(30) == 1


def test_an_index_that_is_out_of_reach_is_said_once(index, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(PackagesFailed, match="the package index could not be reached"):
        create("absent")
