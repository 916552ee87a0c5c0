"""`session`: a shell that stays, from the client's side."""

from __future__ import annotations

import subprocess
import sys
import threading

import anyio
import pytest

from atoll import Chunk, CommandFailed, InvalidInput, SessionEnded

pytestmark = pytest.mark.anyio


@pytest.fixture
def shell(sandbox):
    with sandbox.session() as made:
        yield made


def test_a_session_keeps_what_commands_leave(shell):
    assert shell.run("mkdir -p deep/down && cd deep/down && export NAME=value && greet() { echo hi $1; }").success
    assert shell.run("basename $PWD; echo $NAME; greet you").stdout == "down\nvalue\nhi you\n"


def test_a_virtual_environment_stays_active(shell):
    made = shell.run(f"{sys.executable} -m venv --without-pip env && . env/bin/activate")
    assert made.exit_code == 0, made.stderr
    done = shell.run("command -v python; python -c 'import sys; print(sys.prefix != sys.base_prefix)'")
    assert done.stdout.splitlines()[0].endswith("env/bin/python")
    assert done.stdout.splitlines()[1] == "True"
    assert shell.run("deactivate; command -v deactivate || echo gone").stdout == "gone\n"


def test_a_command_that_fails_is_data_unless_checked(shell):
    done = shell.run("echo out; echo err >&2; (exit 5)")
    assert (done.exit_code, done.stdout, done.stderr, done.success) == (5, "out\n", "err\n", False)
    with pytest.raises(CommandFailed) as caught:
        shell.run("echo wrong >&2; false", check=True)
    assert caught.value.completed.exit_code == 1
    assert shell.run("echo still here", check=True).stdout == "still here\n"


def test_env_and_workdir_are_where_it_starts(sandbox):
    sandbox.files.mkdir("start", exist_ok=True)
    with sandbox.session("sh", env={"A": "it's $1"}, workdir="start") as shell:
        assert shell.shell == "sh"
        assert shell.run('echo "$A"; basename $PWD').stdout == "it's $1\nstart\n"
    with pytest.raises(FileNotFoundError):
        sandbox.session(workdir="no/such/place")


def test_callbacks_hear_each_stream(shell):
    out, err = [], []
    done = shell.run("echo 1; echo e >&2; printf 'äö'", on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == (done.stdout, done.stderr) == ("1\näö", "e\n")


def test_a_stream_is_live_and_has_a_result(sandbox, shell):
    with shell.stream("echo first; while [ ! -e go ]; do sleep 0.01; done; echo second; (exit 3)") as stream:
        assert next(stream) == Chunk("stdout", "first\n")
        sandbox.files.write("go", "")
        assert list(stream) == [Chunk("stdout", "second\n")]
        assert stream.result.exit_code == 3
    sandbox.files.remove("go")


def test_leaving_a_stream_stops_the_command_and_keeps_the_session(shell):
    shell.run("x=kept")
    with shell.stream("echo up; sleep 60; echo after") as stream:
        assert next(stream).text == "up\n"
    assert shell.run("echo $x").stdout == "kept\n"


def test_output_beyond_the_limit_is_cut_and_told(shell):
    done = shell.run("head -c 100000 /dev/zero | tr '\\0' x; echo done >&2", max_output=1000)
    assert (len(done.stdout + done.stderr), done.truncated, done.exit_code) == (1000, True, 0)
    assert not shell.run("echo short", max_output="1K").truncated
    with pytest.raises(InvalidInput):
        shell.run("echo", max_output="much")


def test_a_timeout_is_told_and_the_session_goes_on(shell):
    shell.run("x=kept")
    done = shell.run("echo begun; sleep 60; echo never", timeout=0.3)
    assert (done.timed_out, done.exit_code, done.success, done.stdout) == (True, 124, False, "begun\n")
    assert shell.run("echo $x").stdout == "kept\n"


def test_a_shell_that_had_to_be_killed_has_ended(shell):
    done = shell.run("trap '' INT; while :; do :; done", timeout=0.2)
    assert (done.timed_out, done.exit_code) == (True, 124)
    with pytest.raises(SessionEnded, match="signal 9"):
        shell.run("echo")


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("exec true", 0), ("set -e; false", 1)])
def test_after_its_end_a_session_says_so(shell, command, code):
    assert shell.run(command).exit_code == code
    for _ in range(2):
        with pytest.raises(SessionEnded, match=f"has ended .exit code {code}."):
            shell.run("echo")
    with pytest.raises(SessionEnded):
        list(shell.stream("echo"))


def test_interrupt_from_another_thread(shell):
    assert shell.interrupt() is False
    with shell.stream("echo up; sleep 60; echo after") as stream:
        assert next(stream).text == "up\n"
        told = []
        thread = threading.Thread(target=lambda: told.append(shell.interrupt()))
        thread.start()
        assert list(stream) == []
        thread.join()
        assert (told, stream.result.exit_code, stream.result.timed_out) == ([True], 130, False)


def test_close_kills_what_was_started_also_in_the_background(sandbox, eventually):
    shell = sandbox.session()
    shell.run("sleep 87654 & setsid sleep 87654 & nohup sleep 87654 >/dev/null 2>&1 &")

    def running():
        return sum("87654" in process.command for process in sandbox.processes())

    eventually(lambda: running() == 3)
    shell.close()
    assert running() == 0
    shell.close()
    with pytest.raises(SessionEnded, match="closed"):
        shell.run("echo")


def test_a_session_is_found_again_by_its_id(sandbox, shell):
    shell.run("x=kept")
    again = sandbox.session(id=shell.id)
    assert (again.id, again.shell) == (shell.id, "bash")
    assert again.run("echo $x").stdout == "kept\n"
    code = "import sys; from atoll import Sandbox; shell = Sandbox.connect(sys.argv[1]).session(id=sys.argv[2]); "
    code += "print(shell.run('echo $x').stdout)"
    done = subprocess.run(
        [sys.executable, "-c", code, sandbox.id, shell.id], capture_output=True, text=True, check=True
    )
    assert done.stdout == "kept\n\n"
    again.close()
    with pytest.raises(SessionEnded):
        shell.run("echo")
    with pytest.raises(SessionEnded):
        sandbox.session(id=shell.id)


def test_what_cannot_be_is_refused(sandbox, shell):
    for wrong in ("python", "klingon", "", 5):
        with pytest.raises(InvalidInput):
            sandbox.session(wrong)
    for wrong in (["ls"], b"ls", "nul\0", "\ud800"):
        with pytest.raises(InvalidInput):
            shell.run(wrong)
    with pytest.raises(InvalidInput, match="id alone"):
        sandbox.session("sh", id=shell.id)
    assert shell.run("echo fine").stdout == "fine\n"


def test_many_at_once(sandbox):
    shells = [sandbox.session() for _ in range(8)]
    outcomes = {}

    def work(number, shell):
        shell.run(f"n={number}; cd /; sleep 0.2")
        outcomes[number] = shell.run("echo $n").stdout

    threads = [threading.Thread(target=work, args=item) for item in enumerate(shells)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {number: f"{number}\n" for number in range(8)}
    for shell in shells:
        shell.close()


def test_commands_of_one_session_wait_for_each_other(shell):
    threads = [threading.Thread(target=shell.run, args=(f"sleep 0.05; all=${{all}}{number}",)) for number in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(shell.run("printf $all").stdout) == ["a", "b", "c", "d"]


async def test_asynchronous_sessions_are_the_same(aio_sandbox):
    async with await aio_sandbox.session() as shell:
        await shell.run("x=kept")
        assert (await shell.run("echo $x")).stdout == "kept\n"
        texts = [chunk.text async for chunk in shell.stream("echo a; echo b")]
        assert "".join(texts) == "a\nb\n"
        with anyio.move_on_after(0.2):
            await shell.run("sleep 60")
        assert (await shell.run("echo $x")).stdout == "kept\n", "cancelling stops the command and nothing else"
        assert (await shell.run("exit 2")).exit_code == 2
        with pytest.raises(SessionEnded):
            await shell.run("echo")
