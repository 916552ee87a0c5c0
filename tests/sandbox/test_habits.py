"""Calls as users of other products write them: taken, or answered with the one that is meant."""

from __future__ import annotations

import json
import pickle
import re
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

import atoll
from atoll import (
    AsyncSandbox,
    Codebases,
    Completed,
    Execution,
    FileDenied,
    InvalidInput,
    Sandbox,
    SandboxNotFound,
    Unsupported,
    VariableMissing,
    aio,
    run,
    run_code,
)
from atoll.client.command import check_signal
from atoll.hints import CHUNK, COMPLETED, EXECUTION, FILES, PROCESS, SANDBOX, SESSION
from atoll.types import Chunk, CodeError, Result

MEANT = {
    "provider": "driver", "tags": "labels", "variant": "driver", "env_vars": "env", "timeout_seconds": "timeout",
    "expires_in": "lifetime", "working_dir": "workdir", "cwd": "workdir", "runtime": "driver",
    "snapshot_name": "snapshot", "netwrok": "network", "Timeout": "timeout", "pressets": "preset", "tool": "tools",
    "progress": "on_progress", "metadata": "labels", "template": "image", "requirements": "packages",
    "ttl": "lifetime", "policy": "permissions", "directory": "source",
}  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), MEANT.items())
def test_a_wrong_keyword_says_what_was_meant(written, meant):
    sentence = f"There is no keyword '{written}': did you mean {meant}=?"
    for call in (Sandbox.create, Sandbox.get_or_create, run, run_code):
        with pytest.raises(TypeError) as caught:
            call({"a": "b"} if call == Sandbox.get_or_create else "fake", **{written: "x"})
        assert str(caught.value) == sentence


def test_the_keywords_are_all_told_where_none_is_meant():
    with pytest.raises(TypeError, match=r"the keywords are .*driver.*on_progress.*tools.*preset"):
        Sandbox.create(zzz=1)


CALLS = {
    "run": {"cwd": "workdir", "input": "stdin", "raise_on_error": "check", "timout": "timeout", "env_vars": "env"},
    "stream": {"cwd": "workdir", "envs": "env"},
    "start": {"working_dir": "workdir", "timeout_seconds": "timeout"},
    "run_code": {"lang": "language", "context_id": "context", "on_output": "on_stdout"},
    "stream_code": {"lang": "language"},
    "session": {"cwd": "workdir"},
    "install": {"progress": "on_progress"},
}


@pytest.mark.parametrize(
    ("call", "written", "meant"), [(call, *pair) for call, pairs in CALLS.items() for pair in pairs.items()]
)
def test_a_wrong_keyword_of_a_method_says_what_was_meant(sandbox, call, written, meant):
    with pytest.raises(TypeError) as caught:
        getattr(sandbox, call)("true", **{written: "x"})
    assert str(caught.value) == f"There is no keyword '{written}': did you mean {meant}=?"


def test_words_of_a_command_are_one_list(sandbox):
    with pytest.raises(TypeError) as caught:
        sandbox.run("python3", "-c", "print(1)")
    assert str(caught.value) == "A command with arguments is one list: run(['python3', '-c', 'print(1)'])."


def test_an_error_inside_a_call_is_not_taken_for_a_wrong_call(sandbox):
    def listener(text):
        try:
            {}["missing"]
        except KeyError:
            raise TypeError("mine")  # noqa: B904

    with pytest.raises(TypeError, match=r"^mine$") as caught:
        sandbox.run("echo x", on_stdout=listener)
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__


def test_a_sandbox_is_not_made_by_its_class():
    for wrong in ((), ("jail",), (None,)):
        for article, cls in (("A", Sandbox), ("An", AsyncSandbox)):
            with pytest.raises(TypeError, match=rf"^{article} {cls.__name__} is made with {cls.__name__}\.create\(\)"):
                cls(*wrong)


def test_methods_of_other_products_are_answered_with_ours(sandbox):
    names = "execute exec run_command commands upload read_file read write kill create_snapshot install_packages"
    for name in names.split():
        with pytest.raises(AttributeError) as caught:
            getattr(sandbox, name)
        assert str(caught.value) == f"'Sandbox' has no attribute '{name}'; use {SANDBOX[name]}."
    with pytest.raises(AttributeError, match=r"use connect\(id\)"):
        Sandbox.from_id  # noqa: B018
    with pytest.raises(AttributeError, match=r"'Sandbox' has no attribute 'frobnicate'$"):
        sandbox.frobnicate  # noqa: B018
    assert not hasattr(sandbox, "execute")
    with sandbox.session() as session, pytest.raises(AttributeError, match=r"use run\(command\)"):
        session.exec  # noqa: B018
    with pytest.raises(AttributeError, match="use success"):
        sandbox.run("true").ok  # noqa: B018
    with pytest.raises(AttributeError, match="use exit_code"):
        sandbox.run("true").returncode  # noqa: B018


def test_a_place_that_is_only_read_is_refused_with_one_that_can_be_written():
    with Sandbox.create("jail") as sandbox:
        with pytest.raises(FileDenied, match=r"^Read-only file system: /usr/x\. Files can be written in the workspace"):
            sandbox.files.write("/usr/x", "1")
        sandbox.files.write("data.txt", "1")
        sandbox.files.write("/tmp/data.txt", "1")


def test_every_answer_names_something_that_is_there(sandbox):
    process = sandbox.start("true")
    process.wait()
    ended, cell = sandbox.run("true"), sandbox.run_code("1")
    with sandbox.session() as session:
        taught = [(sandbox, SANDBOX), (session, SESSION), (sandbox.files, FILES), (process, PROCESS)]
        taught += [(ended, COMPLETED), (cell, EXECUTION), (Chunk("stdout", ""), CHUNK)]
        for owner, names in taught:
            for written, words in names.items():
                assert not hasattr(owner, written), written
                first = re.match(r"(?:atoll\.)?(\w+)", words)[1]
                assert first in ("Snapshots", "check", "attach") or hasattr(owner, first), words


@pytest.mark.anyio
async def test_what_makes_a_sandbox_is_awaited_or_entered(anyio_backend, tmp_path):
    async with AsyncSandbox.create("fake") as one:
        assert (await one.run("echo hi")).stdout == "hi\n"
        async with AsyncSandbox.connect(one.id) as same:
            assert same.id == one.id
    with pytest.raises(SandboxNotFound):
        await AsyncSandbox.connect(one.id)
    async with AsyncSandbox.from_local(tmp_path, "full-access", driver="fake") as over:
        assert over.info.spec.source == str(tmp_path)
    async with AsyncSandbox.get_or_create({"habit": over.id}, "fake") as found:
        assert found.labels == {"habit": over.id}
    async with await AsyncSandbox.create("fake") as other:
        assert other.info.status == "running"
    with pytest.raises(TypeError, match="did you mean driver"):
        async with AsyncSandbox.create(provider="fake"):
            pass


@pytest.mark.anyio
async def test_a_task_group_takes_what_makes_a_sandbox(anyio_backend):
    import anyio

    made = []

    async def keep(labels):
        made.append(await AsyncSandbox.create("fake", labels=labels))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, {"a": "b"})
        tasks.start_soon(AsyncSandbox.get_or_create, {"task": made.__repr__()}, "fake")
    made.append(await AsyncSandbox.find({"task": "[]"}))
    for each in made:
        await each.destroy()


def test_times_are_taken_as_people_write_them(sandbox):
    for five in (5, "5", "5s", timedelta(seconds=5)):
        assert sandbox.run("echo x", timeout=five).stdout == "x\n"
    assert sandbox.run("sleep 60", timeout=timedelta(milliseconds=50)).timed_out
    with pytest.raises(InvalidInput, match="give seconds above 0, a timedelta, or text such as '5m'"):
        sandbox.run("true", timeout="soon")


def test_a_sandbox_is_found_by_the_beginning_of_its_id(sandbox):
    assert Sandbox.connect(sandbox.id[:-3]).id == sandbox.id
    with pytest.raises(SandboxNotFound):
        Sandbox.connect(sandbox.id + "0")


def test_a_shell_is_taken_by_its_path(sandbox):
    with sandbox.session("/bin/sh") as session:
        assert session.shell == "sh"


@pytest.mark.parametrize("word", ["TERM", "SIGTERM", "sigterm", 15, signal.SIGTERM])
def test_a_signal_is_taken_by_its_name(word):
    assert check_signal(word) == 15


@pytest.mark.parametrize("wrong", ["TERMINATE", "", "15", 0, 65, True, None])
def test_a_signal_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidInput, match="give a name such as 'TERM'"):
        check_signal(wrong)


def test_a_process_hears_a_signal_by_name(sandbox):
    process = sandbox.start("exec sleep 60")
    sandbox.signal(process.pid, "TERM")
    assert process.wait(30).exit_code == 128 + 15


def test_one_package_is_a_list_of_one(monkeypatch):
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    with Sandbox.create() as sandbox, pytest.raises(Unsupported, match=r"packages=\['six'\]"):
        sandbox.install("six")


@pytest.mark.parametrize("empty", ["", "  ", "\n", [], [""]])
def test_an_empty_command_is_refused(sandbox, empty):
    with pytest.raises(InvalidInput, match="The command is empty"):
        sandbox.run(empty)


@pytest.mark.parametrize("value", [{"k": 1}, ["x", "y"], ("x",), {"x"}, 5])
def test_a_value_that_is_no_content_is_refused(sandbox, value):
    with pytest.raises(InvalidInput):
        sandbox.files.write("a", value)
    assert not sandbox.files.exists("a")
    assert sandbox.files.write("pieces", iter(["x", b"y"])) == 2


def test_a_mapping_is_no_input(sandbox):
    with pytest.raises(InvalidInput, match="cannot be read; give text"):
        sandbox.run("cat", stdin={"k": 1})


def test_a_missing_variable_is_a_key_error(sandbox):
    for error in (VariableMissing, KeyError, InvalidInput):
        with pytest.raises(error, match="There is no variable 'nope'"):
            sandbox.variables.get("nope")


def test_a_pickled_sandbox_is_its_id(sandbox):
    again = pickle.loads(pickle.dumps(sandbox))
    assert isinstance(again, Sandbox)
    assert again.id == sandbox.id
    assert again.run("echo hi").stdout == "hi\n"
    with Sandbox.create("fake") as gone:
        data = pickle.dumps(gone)
    with pytest.raises(SandboxNotFound):
        pickle.loads(data)


@pytest.mark.anyio
async def test_an_asynchronous_sandbox_is_pickled_too(aio_sandbox):
    again = pickle.loads(pickle.dumps(aio_sandbox))
    assert isinstance(again, AsyncSandbox)
    assert (await again.run("echo hi")).stdout == "hi\n"


def test_limits_that_no_machine_reaches_are_refused():
    with pytest.raises(InvalidInput, match="cpu is 4000, and this machine has"):
        Sandbox.create(resources={"cpu": 4000})
    with pytest.raises(InvalidInput, match="memory is 900T, and this machine has"):
        Sandbox.create(resources={"memory": "900T"})


def test_an_image_of_an_engine_is_sent_to_the_engine():
    with pytest.raises(InvalidInput, match='For an image of a container engine say driver="docker"'):
        Sandbox.create(image="python:3.11-slim")


def test_a_path_in_a_codebase_may_begin_with_a_slash():
    shelf = Codebases()
    made = shelf.create("habits")
    try:
        shelf.write(made, "/src/a.py", "1\n")
        assert [each.path for each in shelf.files(made, "/src")] == ["src/a.py"]
        assert shelf.read(made, "/src/a.py") == b"1\n"
    finally:
        shelf.delete(made)


def test_objects_say_what_they_are(sandbox):
    for name in ("files", "variables", "contexts"):
        assert repr(getattr(sandbox, name)) == f"<{name.capitalize()} of {sandbox.id}>"
    process = sandbox.start("exit 3")
    assert repr(process) == f"<Process {process.pid}>"
    process.wait()
    assert repr(process) == f"<Process {process.pid}, ended with 3>"
    assert repr(Codebases()) == "<Codebases of this user>"


def test_results_print_short():
    whole = Completed(0, "hi\n", "", 0.5)
    assert repr(whole) == (
        "Completed(exit_code=0, stdout='hi\\n', stderr='', duration=0.5, timed_out=False, truncated=False, "
        "out_of_memory=False, raw=None, hint=None)"
    )
    assert len(repr(whole._replace(stdout="x" * 10_000_000))) < 500
    figure = Result({"text/plain": "<Figure>", "image/png": "A" * 100_000})
    assert repr(figure) == "Result(data={'text/plain': '<Figure>', 'image/png': …}, is_main=True)"
    cell = Execution((figure,), "", "", CodeError("ValueError", "no", "long\n" * 1000), 1, 0.1)
    assert "CodeError(ValueError: 'no')" in repr(cell)
    assert len(repr(cell)) < 500


def test_a_terminal_obeys_no_class_name():
    for name in ("\x1b]0;title\x07\nE", "E" * 10_000, "\x1b" * 10_000, ""):
        told = repr(Execution((), "", "", CodeError(name, "no", ""), 1, 0.1))
        assert told.isprintable(), "a class inside may be called as it likes"
        assert len(told) < 1500


def test_a_cell_shows_its_table_or_picture_in_a_notebook():
    picture = Result({"text/plain": "<Figure>", "image/png": "AAAA"}, is_main=False)
    table = Result({"text/plain": "a  b", "text/html": "<table></table>"})
    shown = Execution((picture, table), "said\n", "", None, 1, 0.1)._repr_mimebundle_()
    assert "<table>" in shown["text/html"].replace("&lt;", "<")
    assert "<iframe sandbox" in shown["text/html"]
    assert shown["text/plain"] == "said\na  b\n"
    assert Execution((picture,), "", "", None, 1, 0.1)._repr_mimebundle_()["image/png"] == "AAAA"
    lines = Result({"text/plain": "[<Line2D>]"})
    for results in ((lines, picture), (picture, lines)):
        shown = Execution(results, "", "", None, 1, 0.1)._repr_mimebundle_()
        assert shown == {"image/png": "AAAA", "text/plain": "[<Line2D>]\n"}
    assert Execution((lines,), "", "", None, 1, 0.1)._repr_mimebundle_() == {"text/plain": "[<Line2D>]\n"}
    failed = Execution((), "", "", CodeError("E", "no", "Traceback: no"), 1, 0.1)._repr_mimebundle_()
    assert failed == {"text/plain": "Traceback: no\n"}
    json.dumps(shown)


def test_the_awaited_helpers_are_found():
    """In a process that has imported nothing else."""
    code = "import atoll, asyncio; print(asyncio.run(atoll.aio.run('echo hi', 'fake')).stdout, end='')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "hi\n"
    for name, meant in (("arun", "run"), ("async_run", "run"), ("arun_code", "run_code")):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use await atoll\.aio\.{meant}\("):
            getattr(atoll, name)


@pytest.mark.anyio
async def test_the_awaited_helpers_say_the_same(anyio_backend):
    with pytest.raises(TypeError, match="did you mean driver"):
        await aio.run("true", provider="fake")
