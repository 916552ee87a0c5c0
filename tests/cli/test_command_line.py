"""The command line itself: help, versions, health, and what a start costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import atoll as package
from atoll.cli import COMMANDS


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(atoll, words):
    done = atoll(*words)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.decode().splitlines())) <= 80, "it fits the smallest terminal"
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", done.out.decode(), re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(atoll, name):
    done = atoll(name, "--help")
    text = done.out.decode()
    assert (done.code, done.err) == (0, "")
    assert text.startswith(f"usage: atoll {name}")
    assert max(map(len, text.splitlines())) <= 80, "it fits the smallest terminal"
    assert atoll("help", name).out == done.out


@pytest.mark.parametrize("name", ["run", "repl", "exec", "shell", "cp", "list", "stop", "resume", "destroy", "fork"])
def test_the_examples_of_the_help_are_real_options(atoll, name):
    options, examples = atoll(name, "--help").out.decode().split("examples:\n")
    examples = re.sub(r"\"[^\"]*\"|'[^']*'", "QUOTED", examples)
    shown = re.findall(rf"atoll {name} ((?:(?!-- |  |\)|\|).)*)", examples)
    assert shown
    for example in shown:
        for option in re.findall(r"(?<!\S)--?[a-z]+", example):
            assert re.search(rf"^  .*{option}\b", options, re.MULTILINE), option


def test_an_unknown_command_is_answered_with_the_nearest(atoll):
    done = atoll("rum")
    assert done == (
        125,
        b"",
        "atoll: There is no command 'rum'. Did you mean `atoll run`? `atoll --help` lists them all.\n",
    )


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("ps", "`atoll list` shows the sandboxes"),
        ("rm", "`atoll destroy` ends a sandbox"),
        ("commit", "`atoll snapshot"),
    ],
)
def test_a_word_of_dockers_is_answered_with_ours(atoll, word, instead):
    done = atoll(word)
    assert (done.code, done.out) == (125, b"")
    assert done.err.startswith(f"atoll: There is no command '{word}'; {instead}")


def test_a_sandbox_has_no_log(atoll):
    done = atoll("logs", "sb-k3x")
    assert (done.code, done.out) == (125, b"")
    assert "Sandboxes have no log" in done.err
    assert "`atoll audit sb-k3x`" in done.err


def test_the_version_is_the_packages(atoll):
    assert atoll("version").out.decode().startswith(f"atoll {package.__version__} (Python 3.")
    assert atoll("--version").out == atoll("version").out
    assert json.loads(atoll("version", "--json").out)["atoll"] == package.__version__


def test_the_module_is_the_same_command_line(atoll):
    done = subprocess.run([sys.executable, "-m", "atoll", "version"], env=atoll.env(), capture_output=True, check=True)
    assert done.stdout == atoll("version").out


def test_a_broken_pipe_ends_a_list_quietly(atoll):
    process = atoll.start("--help", stdout=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(60) in (0, 141)
    assert process.stderr.read() == b""


def test_doctor_shows_each_layer_and_that_the_wall_stands(atoll):
    done = atoll("doctor")
    assert done.code == 0
    text = done.out.decode()
    for layer in ("state directory", "Linux", "namespaces", "mounts", "seccomp"):
        assert re.search(rf"^on +{layer} ", text, re.MULTILINE), text
    assert text.endswith("The jail wall can be built here.\n")


def test_doctor_tells_programs_the_same(atoll):
    report = json.loads(atoll("doctor", "--json").out)
    assert report["driver"] == "jail"
    assert report["ready"] is True
    assert {"name", "ready", "detail", "fix", "required", "state"} == report["layers"][0].keys()
    for layer in report["layers"]:
        assert layer["state"] == ("on" if layer["ready"] else "weaker"), layer
        assert layer["ready"] or layer["fix"], "what is missing comes with what to do"


def test_doctor_says_what_is_off_and_how_to_mend_it(atoll, tmp_path):
    (tmp_path / "somebody's").touch()
    os.chmod(tmp_path, 0o777)
    done = atoll("doctor", env={"ATOLL_HOME": str(tmp_path)})
    assert done.code == 1
    text = done.out.decode()
    assert re.search(r"^off +state directory +Others can use the state directory", text, re.MULTILINE)
    assert f"→ Run: chmod 700 {tmp_path}" in text
    assert text.endswith("The jail wall cannot be built here; fix what is marked off.\n")
    broken = atoll("doctor", "--json", env={"ATOLL_HOME": str(tmp_path)})
    assert broken.code == 1
    assert json.loads(broken.out)["ready"] is False


def test_a_state_directory_that_cannot_be_used_is_a_sentence(atoll, tmp_path):
    (tmp_path / "somebody's").touch()
    os.chmod(tmp_path, 0o777)
    done = atoll("run", "true", env={"ATOLL_HOME": str(tmp_path)})
    assert done.code == 125
    assert "Run: chmod 700" in done.err


def test_providers_are_listed_with_how_they_stand(atoll):
    text = atoll("providers").out.decode()
    assert re.search(r"^jail \(default\) +ready +container +kernel namespaces", text, re.MULTILINE)
    assert re.search(r"^fake +ready +none +no wall.*\n +\+ code commands", text, re.MULTILINE)
    other = atoll("providers", env={"ATOLL_DRIVER": "fake"}).out.decode()
    assert re.search(r"^fake \(default\) +ready", other, re.MULTILINE)
    by_name = {provider["name"]: provider for provider in json.loads(atoll("providers", "--json").out)}
    assert "isolation" in by_name["jail"]["capabilities"]
    assert "isolation" not in by_name["fake"]["capabilities"]


@pytest.mark.parametrize("driver", ["jail", "fake"])
def test_the_smoke_test_passes_with_figures(atoll, driver):
    done = atoll("test", "-p", driver)
    lines = done.out.decode().splitlines()
    assert done.code == 0, lines
    assert lines[0].startswith(f"{driver}: ")
    assert all(re.fullmatch(r"  ok  .{44} +\d+\.\d ms", line) for line in lines[1:-1]), lines
    assert len(lines) > 10
    assert lines[-1] == "All of it works."


def test_the_smoke_test_fails_where_the_wall_does(atoll, tmp_path):
    (tmp_path / "somebody's").touch()
    os.chmod(tmp_path, 0o777)
    done = atoll("test", env={"ATOLL_HOME": str(tmp_path)})
    assert done.code == 1
    assert "  failed  create: Others can use the state directory" in done.out.decode()
    assert done.out.endswith(b"\n1 step failed.\n")


def loaded_by(atoll, *words):
    """The modules that a command loads on top of a bare interpreter."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from atoll.cli import main\n"
        f"try: main({list(words)!r})\n"
        "except SystemExit: pass\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=atoll.env(), capture_output=True, text=True, check=True,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    return set(done.stderr.split())


def test_help_costs_next_to_nothing(atoll):
    assert {name for name in loaded_by(atoll, "--help") if "." not in name} == {"__future__", "atoll"}
    modules = loaded_by(atoll, "run", "--help")
    assert not modules & {"sqlite3", "socket", "shutil", "atoll.sync"}
    assert "argparse" in modules, "the control must see something"


def test_a_run_loads_nothing_that_it_does_not_need(atoll):
    heavy = {
        "anyio", "asyncio", "concurrent.futures", "ctypes", "dataclasses", "inspect", "locale", "logging", "pathlib",
        "shutil", "subprocess", "tempfile", "threading", "atoll.cli.deps", "atoll.cli.languages", "atoll.cli.list",
        "atoll.cli.cells", "atoll.cli.repl", "atoll.client.cells", "readline",
    }  # fmt: skip
    modules = loaded_by(atoll, "run", "echo hi")
    assert modules & heavy == set()
    assert "atoll.cli.streaming" in modules
