"""`install` in a sandbox that runs already, from an index that listens on this machine."""

from __future__ import annotations

import functools
import http.server
import os
import threading

import pytest
from tests import thorough

from atoll import PackagesFailed, Sandbox
from atoll.errors import Unsupported
from atoll.home import state_dir
from atoll.sandbox import AsyncSandbox
from atoll.testing import wheels

MADE_WITH = ["made-with==1.0"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A directory of wheels, served on the loopback, which a sandbox with the host's network reaches.

    One for all tests, so that what a sandbox is made with is built once.
    """
    place = tmp_path_factory.mktemp("wheels")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(place)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        wheels.use_only(place, patch)
        patch.setenv("PIP_FIND_LINKS", f"http://127.0.0.1:{server.server_port}/ {place}")
        for version in ("1.0", "2.0"):
            wheels.make(place, "made-with", {"made_with.py": f"A = {version[0]}\n"}, version=version)
        yield place
    server.shutdown()
    server.server_close()


def test_what_is_installed_is_there_at_once(index):
    wheels.make(index, "late-comer", {"late_comer.py": "import made_with; A = made_with.A + 1\n"}, needs="made-with")
    said = []
    with Sandbox.create("jail", network="host", packages=MADE_WITH) as sandbox:
        assert sandbox.run_code("import late_comer").error is not None, "not yet"
        sandbox.install(["late-comer"], on_progress=said.append)
        assert sandbox.run_code("import late_comer; late_comer.A").text == "2", "in a context that runs"
        assert sandbox.run(["python3", "-c", "import late_comer; print(late_comer.A)"]).stdout == "2\n"
        assert sandbox.run("ls ~/.local/lib/python*/site-packages").stdout.split().count("made_with.py") == 0
        assert any("is left out" in line for line in said), "files of the host cannot be shown any more"
    with Sandbox.create("jail", network="host", packages=MADE_WITH) as other:
        assert other.run_code("import late_comer").error is not None, "and nowhere else"


def test_a_sandbox_without_packages_takes_some_too(index):
    wheels.make(index, "alone", {"alone.py": "A = 1\n"})
    with Sandbox.create("jail", network="host") as sandbox:
        sandbox.run_code("before = 1")
        sandbox.install(["alone"])
        assert sandbox.run_code("import alone; alone.A + before").text == "2"
        assert sandbox.run(["python3", "-c", "import alone; print(alone.A)"]).stdout == "1\n"


def test_a_newer_version_goes_before_the_one_that_it_was_made_with(index):
    show = ["python3", "-c", "import made_with; print(made_with.A)"]
    with Sandbox.create("jail", network="host", packages=MADE_WITH) as sandbox:
        assert sandbox.run(show).stdout == "1\n"
        sandbox.install(["made-with==2.0"])
        assert sandbox.run(show).stdout == "2\n"
        sandbox.run_code("1", context="fresh")
        assert sandbox.run_code("import made_with; made_with.A", context="fresh").text == "2"


def test_a_failing_install_says_why_and_the_sandbox_lives(index):
    with Sandbox.create("jail", network="host") as sandbox:
        with pytest.raises(PackagesFailed, match="No matching distribution found for absent"):
            sandbox.install(["absent"])
        assert sandbox.run_code("1 + 1").text == "2"


def test_without_a_network_wheels_are_fetched_outside_and_installed_inside(index):
    wheels.make(
        index, "outside-in", {"outside_in.py": "import made_with; A = made_with.A + 4\n"}, needs="made-with==1.0"
    )
    with Sandbox.create("jail") as sandbox:
        sandbox.install(["outside-in"])
        assert sandbox.run_code("import outside_in; outside_in.A").text == "5"
        assert sandbox.run("ls /tmp").stdout == "", "the wheels are gone"
        with pytest.raises(PackagesFailed, match="No matching distribution found for absent"):
            sandbox.install(["absent"])
        assert sandbox.run_code("outside_in.A").text == "5"
    assert [name for name in os.listdir(f"{state_dir()}/environments") if name.startswith("wheels.")] == []


def test_what_has_to_be_built_needs_a_network(index, monkeypatch):
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    with Sandbox.create("jail") as sandbox, pytest.raises(Unsupported, match=r"packages=\['numpy'\]"):
        sandbox.install(["numpy"])


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", thorough.turns(["asyncio", "trio"]))
async def test_it_can_be_awaited(index, anyio_backend):
    name = f"awaited-{anyio_backend}"
    wheels.make(index, name, {"awaited.py": "A = 1\n"})
    said = []

    async def hear(line):
        said.append(line)

    async with await AsyncSandbox.create("jail", network="host", packages=[name], on_progress=hear) as sandbox:
        assert (await sandbox.run_code("import awaited; awaited.A")).text == "1"
        assert said
        wheels.make(index, "awaited-too", {"awaited_too.py": "A = 2\n"})
        await sandbox.install(["awaited-too"], on_progress=hear)
        assert (await sandbox.run_code("import awaited_too; awaited_too.A")).text == "2"
