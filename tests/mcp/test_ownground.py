"""With --allow-apply a model changes files of the host: nothing of them is started there by the server itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.mcp.lineclient import LineClient
from tests.mcp.test_running import until

from atoll import Sandbox
from atoll.testing.playedmodel import PlayedModel, says

APPLYING = ("--allow-apply", "--preset", "development")
# Leaves a mark where it runs; it need not be a server, since a client starts it first.
MARK = "import os, sys\nopen(os.environ.get('MARK', {mark!r}), 'a').write('ran')\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def model(monkeypatch):
    model = PlayedModel([says("Done.")])
    model.start()
    monkeypatch.setenv("ATOLL_MODEL", "played")
    monkeypatch.setenv("ATOLL_BASE_URL", model.url)
    monkeypatch.setenv("ATOLL_API_KEY", "sk-played")
    before = {info.id for info in Sandbox.list()}
    yield model
    model.stop()
    for info in Sandbox.list():
        if info.id not in before and info.status != "gone":
            Sandbox.connect(info.id).destroy()


def _ended(client, id):
    return client.data("agent_status", id=id)["state"] not in ("waiting", "running")


def _write(client, project, path, text):
    client.tool("execute_python", code=f"import os\nos.makedirs({os.path.dirname(path) or '.'!r}, exist_ok=True)\n"
                f"open({path!r}, 'w').write({text!r})", source=str(project))  # fmt: skip
    return client.data("apply")


WAYS = {
    "argument": 'command = "{python}"\nargs = ["tools/server.py"]\n',
    "working directory": 'command = "{python}"\nargs = ["-m", "server"]\ncwd = "tools"\n',
    "environment": 'command = "{python}"\nargs = ["-m", "server"]\ncwd = "/"\nenv = {{ PYTHONPATH = "{tools}" }}\n',
    "shell": 'command = "sh"\nargs = ["-c", "cd {tools} && exec {python} server.py"]\ncwd = "/"\n',
    "link outside": 'command = "{python}"\nargs = ["{outside}"]\ncwd = "/"\n',
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_the_configuration_names_is_not_started_once_a_model_may_change_it(
    project, model, tmp_path, monkeypatch, way
):
    mark, tools = tmp_path / "mark", project / "tools"
    tools.mkdir()
    (tools / "server.py").write_text("raise SystemExit\n")
    (tmp_path / "outside.py").symlink_to(tools / "server.py")
    config = tmp_path / "own.toml"
    words = WAYS[way].format(python=sys.executable, tools=tools, outside=tmp_path / "outside.py")
    config.write_text(f"[atoll.mcp_servers.t]\n{words}")
    monkeypatch.setenv("ATOLL_CONFIG", str(config))
    with LineClient("--allow-source", str(project), *APPLYING) as client:
        done = _write(client, project, "tools/server.py", MARK.format(mark=str(mark)))
        assert done["applied"] == ["tools/server.py"]
        answer = client.tool("agent_run", task="Say done.")
        assert "Without the MCP servers t" in answer["content"][0]["text"]
        id = answer["structuredContent"]["id"]
        until(lambda: _ended(client, id), "the run ends", 60)
        assert client.data("agent_status", id=id)["response"] == "Done."
        assert not mark.exists()
    with LineClient("--allow-source", str(project)) as client:
        client.data("agent_run", task="Say done.")
        until(mark.exists, "a server that may not apply starts it, as its owner wants", 60)


def test_the_owner_is_told_when_the_server_starts(project, tmp_path, monkeypatch):
    config = tmp_path / "own.toml"
    config.write_text('[atoll.mcp_servers.t]\ncommand = "sh"\n[atoll.mcp_servers.u]\nurl = "http://127.0.0.1:9/"\n')
    monkeypatch.setenv("ATOLL_CONFIG", str(config))
    words = [sys.executable, "-m", "atoll", "mcp-serve", "--allow-source", str(project)]
    quiet = subprocess.run(words, input=b"", capture_output=True, timeout=60, check=True).stderr.decode()
    told = subprocess.run([*words, *APPLYING], input=b"", capture_output=True, timeout=60, check=True).stderr.decode()
    assert "MCP servers" not in quiet
    assert "leaves out the MCP servers t:" in told


def test_the_server_imports_nothing_that_a_session_has_brought_over(project, tmp_path):
    """`python -m` has the working directory first on its path, and modules are imported when they are needed."""
    mark = tmp_path / "mark"
    with LineClient("--allow-source", str(project), *APPLYING) as client:
        assert _write(client, project, "difflib.py", MARK.format(mark=str(mark)))["applied"] == ["difflib.py"]
        assert "session_id" in client.refusal("diff", sesion_id="x")
        assert not mark.exists()
    with LineClient("--allow-source", str(project)) as client:
        client.answer(client.begin_tool("diff", sesion_id="x"))
        assert mark.exists(), "the attempt is one"


def test_programs_of_the_project_are_not_found(project, tmp_path, monkeypatch):
    (project / "bin").mkdir()
    (tmp_path / "link").symlink_to(project / "bin")
    path = os.pathsep.join([str(project / "bin"), str(tmp_path / "link"), ".", "", os.environ["PATH"]])
    code = (
        "import shutil, sys; from atoll.mcp.ownground import leave_sources; from atoll.mcp.settings import Settings\n"
        "leave_sources(Settings(sources=(sys.argv[1],), apply=sys.argv[2] == 'apply')); print(shutil.which('frob'))"
    )
    (project / "bin/frob").write_text("#!/bin/sh\n")
    (project / "bin/frob").chmod(0o755)
    for way, expected in {"look": str(project / "bin/frob"), "apply": "None"}.items():
        done = subprocess.run([sys.executable, "-P", "-c", code, str(project), way], env={**os.environ, "PATH": path},
            capture_output=True, text=True, check=True)  # fmt: skip
        assert done.stdout.strip() == expected


@pytest.fixture
def inner_python(project, monkeypatch):
    """atoll runs by a virtual environment that lies in the project, as many have it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setattr(sys, "executable", str(project / ".venv/bin/python"))
    return f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def test_no_session_changes_the_python_that_the_server_runs_by(project, inner_python):
    with LineClient("--allow-source", str(project), *APPLYING) as client:
        done = _write(client, project, "app.py", "1")
        assert done["applied"] == ["app.py"]
        done = _write(client, project, f"{inner_python}/own.pth", "import os; os._exit(3)\n")
        assert done["applied"] == []
        assert "What this server runs itself" in done["rejected"][f"{inner_python}/own.pth"]
        client.tool("run_command", command="rm -rf .venv; mkdir other; ln -s other .venv")
        done = client.data("apply")
        assert "other" in done["applied"]
        assert not any(path.startswith(".venv") for path in done["applied"])
    assert (project / ".venv/bin/python").exists()


def test_no_run_begins_where_it_would_import_from_the_project(project, model, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*(path for path in sys.path if path), str(project)]))
    with LineClient("--allow-source", str(project), *APPLYING) as client:
        assert "install atoll apart" in client.refusal("agent_run", task="Say done.")
    with LineClient("--allow-source", str(project)) as client:
        id = client.data("agent_run", task="Say done.")["id"]
        until(lambda: _ended(client, id), "the run ends", 60)


def test_files_that_the_environment_names_are_guarded(project, monkeypatch):
    (project / "runtime").write_text("old")
    monkeypatch.setenv("ATOLL_RUNSC", str(project / "runtime"))
    with LineClient("--allow-source", str(project), *APPLYING) as client:
        assert "runtime" in _write(client, project, "runtime", "new")["rejected"]
    assert (project / "runtime").read_text() == "old"


def test_a_home_directory_is_no_source_that_can_be_applied_to(project, monkeypatch):
    monkeypatch.setenv("ATOLL_HOME", os.environ.get("ATOLL_HOME") or os.path.expanduser("~/.local/state/atoll"))
    monkeypatch.setenv("HOME", str(project))
    for source in (project, project.parent, "/"):
        words = [sys.executable, "-m", "atoll", "mcp-serve", "--allow-source", str(source)]
        done = subprocess.run([*words, *APPLYING], input=b"", capture_output=True, timeout=60, check=False)
        assert done.returncode != 0
        assert b"holds your home directory" in done.stderr
        subprocess.run(words, input=b"", capture_output=True, timeout=60, check=True)
