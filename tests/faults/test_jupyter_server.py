"""What breaks between us and a Jupyter server: each fault is told, with what to do, and others go on."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest
from tests.jupyterserver import jupyter_server, settings

from atoll import InvalidInput, Sandbox, SandboxGone, Unsupported, WallUnavailable
from atoll.home import state_dir
from atoll.testing.waiting import eventually


@pytest.fixture(scope="module")
def server():
    with jupyter_server() as made:
        yield made


@pytest.fixture
def use(monkeypatch):
    def use(server, **changed):
        for name, value in {**settings(server), **changed}.items():
            monkeypatch.setenv(name, value)

    return use


def create(**wishes):
    return Sandbox.create("jupyter-server", lifetime=600, **wishes)


def refused(error, label, match):
    with pytest.raises(error, match=match) as caught:
        create(labels=label)
    assert Sandbox.list(label) == []
    return caught.value.hint


def test_without_an_address_it_says_what_to_set(monkeypatch):
    monkeypatch.delenv("ATOLL_JUPYTER_URL", raising=False)
    assert "ATOLL_JUPYTER_URL=http" in refused(InvalidInput, {"no": "address"}, "ATOLL_JUPYTER_URL")
    monkeypatch.setenv("ATOLL_JUPYTER_URL", "somewhere")
    refused(InvalidInput, {"no": "address"}, "no address")


def test_a_bad_token_is_told_with_the_fix_and_starts_nothing(server, use):
    use(server, ATOLL_JUPYTER_TOKEN="wrong")
    hint = refused(WallUnavailable, {"bad": "token"}, "does not accept the token")
    assert "ATOLL_JUPYTER_TOKEN" in hint
    assert "wrong" not in hint
    assert server.kernels() == []


def test_where_nothing_listens_it_says_how_to_start_one(server, use):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    use(server, ATOLL_JUPYTER_URL=f"http://127.0.0.1:{port}/")
    assert "jupyter server" in refused(WallUnavailable, {"no": "server"}, "No Jupyter server answers")


def test_what_is_no_jupyter_server_is_told(server, use):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        use(server, ATOLL_JUPYTER_URL=f"http://127.0.0.1:{page.server_port}/")
        refused(WallUnavailable, {"other": "server"}, "is no Jupyter server")
        page.shutdown()


def test_a_missing_kernel_is_told_with_those_there_are(server, use):
    use(server, ATOLL_JUPYTER_KERNEL="klingon")
    hint = refused(Unsupported, {"missing": "kernel"}, r"no kernel 'klingon'; it has: .*python3")
    assert "ATOLL_JUPYTER_KERNEL" in hint
    assert server.kernels() == []


def test_the_token_is_kept_from_the_registry_the_state_and_the_sandbox(server, use, tmp_path):
    use(server)
    with create() as sandbox:
        told = sandbox.run("env; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '").stdout
        assert "ATOLL_JUPYTER_TOKEN" not in told
        assert json.dumps(sandbox._core._record.handle.data).count(server.token) == 0
        # Others have left disks here, of gigabytes without a byte in them. Another process reads them: to open and
        # close the registry in this one would give up the locks that SQLite holds on it.
        places = [os.path.join(directory, name) for directory, _, files in os.walk(state_dir()) for name in files]
        small = [path for path in places if os.path.isfile(path) and os.path.getsize(path) < 64 << 20]
        planted = tmp_path / "planted"
        planted.write_text(server.token)
        # By xargs: there may be more of them than one command takes.
        look = ["xargs", "-0", "grep", "--files-with-matches", "--fixed-strings", "--text", server.token]
        listed = "\0".join([str(planted), *small])
        found = subprocess.run(look, input=listed, capture_output=True, text=True, check=False).stdout
        assert found.splitlines() == [str(planted)]


def test_nothing_is_left_on_the_server(server, use):
    use(server)
    with create() as sandbox:
        place = sandbox.run("pwd").stdout.strip()
        sandbox.run_code("1")
        pid = sandbox.start("sleep 98765").pid
        assert len(server.kernels()) == 1
    assert server.kernels() == []
    eventually(lambda: not os.path.exists(place), "its files are gone")
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "its processes are gone")


def test_a_kernel_that_is_removed_behind_our_back_is_told_and_others_go_on(server, use):
    use(server)
    with create() as sandbox, create() as other:
        for kernel in server.kernels():
            if kernel == sandbox._core._record.handle.data["kernel"]:
                url = f"{server.url}api/kernels/{kernel}"
                headers = {"Authorization": f"token {server.token}"}
                urllib.request.urlopen(
                    urllib.request.Request(url, method="DELETE", headers=headers), timeout=30
                ).close()
        eventually(lambda: sandbox.refresh().status == "gone", "its end is seen")
        with pytest.raises(SandboxGone, match="Jupyter server"):
            sandbox.run("true")
        assert other.run_code("1 + 1").text == "2"


def test_the_kernel_of_a_steward_that_was_killed_ends_with_the_sandbox(server, use):
    use(server)
    sandbox = create()
    os.kill(sandbox._core._record.handle.data["pid"], signal.SIGKILL)
    eventually(lambda: sandbox.refresh().status == "gone", "its end is seen")
    assert len(server.kernels()) == 1
    sandbox.destroy()
    assert server.kernels() == []


def test_a_server_that_goes_away_in_mid_run_is_told_and_others_go_on(use):
    with Sandbox.create("inprocess", lifetime=600) as other, jupyter_server() as doomed:
        use(doomed)
        sandbox = create()
        sandbox.run_code("import os; open('begun', 'w').close()")
        begun = time.monotonic()
        threading.Timer(0.5, doomed.kill).start()
        with pytest.raises(SandboxGone):
            sandbox.run_code("import time; time.sleep(1000)", timeout=None)
        assert time.monotonic() - begun < 60
        assert "Jupyter server" in (sandbox.refresh().reason or "")
        assert other.run_code("1 + 1").text == "2"
        sandbox.destroy()


def test_a_server_without_python_is_refused_before_anything_starts(use, tmp_path):
    (tmp_path / "kernels" / "bash").mkdir(parents=True)
    described = {"argv": ["bash"], "language": "bash", "display_name": "Bash"}
    (tmp_path / "kernels" / "bash" / "kernel.json").write_text(json.dumps(described))
    with jupyter_server("--KernelSpecManager.allowed_kernelspecs={'bash'}", JUPYTER_PATH=str(tmp_path)) as poor:
        use(poor)
        hint = refused(Unsupported, {"no": "python"}, "no kernel of Python")
        assert "pip install ipykernel" in hint
        assert poor.kernels() == []
