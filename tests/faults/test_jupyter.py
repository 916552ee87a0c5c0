"""What breaks under a jupyter sandbox: each fault is told, with what to do, and others go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from atoll import Sandbox, Unsupported
from atoll.testing.waiting import eventually


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("jupyter", lifetime=600, resources={"memory": "2G", "pids": 2000}) as made:
        yield made


@pytest.fixture
def bash(tmp_path, monkeypatch):
    """The kernel of bash, described where this user's kernels are."""
    argv = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
    (tmp_path / "kernels" / "bash").mkdir(parents=True)
    described = {"argv": argv, "language": "bash", "display_name": "Bash"}
    (tmp_path / "kernels" / "bash" / "kernel.json").write_text(json.dumps(described))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))


def test_a_missing_kernel_is_told_with_those_there_are_before_anything_starts(monkeypatch):
    monkeypatch.setenv("ATOLL_JUPYTER_KERNEL", "klingon")
    with pytest.raises(Unsupported, match=r"no Jupyter kernel 'klingon'; there are: .*python3") as caught:
        Sandbox.create("jupyter", labels={"missing": "kernel"})
    assert "ipykernel install --user --name klingon" in caught.value.hint
    assert Sandbox.list({"missing": "kernel"}) == []


def test_a_missing_kernel_is_refused_with_those_that_there_are(sandbox):
    with pytest.raises(Unsupported, match="python3"):
        sandbox.run_code("1", language="jupyter:klingon")
    assert sandbox.run_code("1 + 1").text == "2"


def test_without_its_packages_the_driver_says_what_to_install():
    program = (
        "from atoll import Sandbox, errors\ntry: Sandbox.create('jupyter')\nexcept errors.DriverMissing as e: print(e)"
    )
    python = os.path.realpath(sys.executable)
    path = os.pathsep.join(path for path in sys.path if path.endswith("src"))
    env = {"PATH": os.environ["PATH"], "ATOLL_HOME": os.environ["ATOLL_HOME"], "PYTHONPATH": path}
    if (
        subprocess.run([python, "-c", "import jupyter_client"], env=env, capture_output=True, check=False).returncode
        == 0
    ):
        pytest.skip("this Python has jupyter_client of its own")
    told = subprocess.run([python, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert "pip install 'atoll[jupyter]'" in told.stdout, told.stderr


@pytest.mark.parametrize("death", ["import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), 9)"])
def test_a_kernel_that_dies_in_a_cell_is_no_success(sandbox, death):
    sandbox.run_code("kept = 1", context="other")
    sandbox.run_code("lost = 1", context="dying")
    dead = sandbox.run_code(f"print('last words', flush=True)\n{death}", context="dying")
    assert not dead.success
    assert dead.state_lost
    assert (dead.error.name, dead.stdout) == ("ContextDied", "last words\n")
    assert "the kernel has died" in dead.error.value
    assert sandbox.run_code("'lost' in globals()", context="dying").text == "False"
    assert sandbox.run_code("kept", context="other").text == "1"


def test_a_kernel_that_dies_between_two_cells_is_told(sandbox):
    pid = int(sandbox.run_code("import os; lost = 1; os.getpid()", context="between").text)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "it is dead")
    after = sandbox.run_code("'lost' in globals()", context="between")
    assert after.state_lost
    # It may have come while the end was being noticed; then it has not run at all.
    assert after.text == "False" or after.error.name == "ContextDied"
    assert sandbox.run_code("'lost' in globals()", context="between").text == "False"


def test_a_kernel_that_takes_all_memory_is_told():
    with Sandbox.create("jupyter", lifetime=600, resources={"memory": "300M"}) as small:
        eaten = small.run_code("x = bytearray(500 << 20)", timeout=60)
        assert not eaten.success
        assert small.run_code("1 + 1", timeout=60).text == "2"


def test_a_dead_nest_is_replaced(sandbox):
    nests = [
        each for each in sandbox.processes() if each.parent == _guest(sandbox) and each.pid not in _bridges(sandbox)
    ]
    assert nests
    for nest in nests:
        os.kill(nest.pid, signal.SIGKILL)
    eventually(lambda: not any(os.path.exists(f"/proc/{each.pid}") for each in nests), "it is dead")
    assert sandbox.run_code("'fresh'", context="after").text == "'fresh'"


def _guest(sandbox):
    from atoll.engine import usage

    return usage.children(sandbox._core._record.handle.data["pid"])[0]


def _bridges(sandbox):
    return [each.pid for each in sandbox.contexts.list()]


def test_another_kernel_keeps_its_state_and_tells_its_errors(bash):
    with Sandbox.create("jupyter", lifetime=600) as other:
        other.run_code("x=41", language="jupyter:bash")
        done = other.run_code("echo $((x + 1))", language="jupyter:bash")
        assert (done.stdout, done.error) == ("42\n", None)
        with pytest.raises(Unsupported):
            other.variables.get("x", context="jupyter:bash")
        with pytest.raises(Unsupported, match="no env"):
            other.run_code("true", language="jupyter:bash", env={"A": "1"})
        assert other.run_code("1 + 1").text == "2"


def test_another_kernel_can_be_the_one_for_code_without_a_language(bash, monkeypatch):
    monkeypatch.setenv("ATOLL_JUPYTER_KERNEL", "bash")
    with Sandbox.create("jupyter", lifetime=600) as other:
        assert other.run_code("echo from $0").stdout.startswith("from ")
        assert other.run_code("1 + 1", language="python", context="python").text == "2"


def test_results_are_rich_and_errors_plain(sandbox):
    done = sandbox.run_code("from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\n{'a': 1}")
    assert [(result.html, result.is_main) for result in done.results] == [("<b>x</b>", False), (None, True)]
    assert done.text == "{'a': 1}"
    large = sandbox.run_code("display({'text/html': 'x' * 700_000}, raw=True)")
    assert len(large.results[0].html) == 700_000
    error = sandbox.run_code("1 / 0").error
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "\x1b" not in error.traceback


def test_nothing_of_the_kernel_is_left_in_the_workspace(sandbox):
    sandbox.run_code("1")
    assert [entry.name for entry in sandbox.files.list() if entry.name.startswith(".")] == []
