"""`exec`, `signal` and `processes`."""

import contextlib
import os
import resource
import signal
import sys

import pytest
from tests.guest.rawclient import eventually

SH = "/bin/sh"


def sh(client, script, **arguments):
    return client.run(SH, "-c", script, **arguments)


def test_a_command_gives_its_output_its_streams_and_its_exit_code(client):
    ended = sh(client, "echo out; echo err >&2; exit 3")
    assert (ended.stdout, ended.stderr) == (b"out\n", b"err\n")
    assert ended.ok["exit_code"] == 3
    assert ended.ok["timed_out"] is False
    assert ended.ok["truncated"] is False
    assert ended.ok["duration"] > 0


def test_the_pid_is_told_first_and_is_that_of_the_command(client):
    channel = client.open("exec", argv=[SH, "-c", "echo $$"])
    pid = client.event(channel)["pid"]
    assert client.finish(channel).stdout == b"%d\n" % pid


def test_arguments_are_passed_as_they_are(client):
    words = ["a b", "", "$HOME", "'", '"', "\n", "caf\u00e9", "\udcff\udcfe"]
    ended = client.run(sys.executable, "-c", "import sys, os; print([os.fsencode(a) for a in sys.argv[1:]])", *words)
    assert eval(ended.stdout) == [word.encode("utf-8", "surrogateescape") for word in words]


def test_output_that_is_no_text_comes_through(client):
    ended = client.run(sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)")
    assert ended.stdout == bytes(range(256)) * 1000


def test_a_signal_is_told_as_a_shell_tells_it(client):
    assert sh(client, "kill -TERM $$").ok["exit_code"] == 128 + signal.SIGTERM


def test_the_environment_is_the_sandboxs_and_the_requests_and_nothing_else(guest, client):
    ended = client.run("/usr/bin/env", env={"ASKED": "yes", "LANG": "en", "ODD": "\udcff"})
    variables = dict(line.split(b"=", 1) for line in ended.stdout.splitlines())
    assert variables == {
        b"PATH": os.environb[b"PATH"],
        b"HOME": b"/workspace",
        b"LANG": b"en",
        b"ASKED": b"yes",
        b"ODD": b"\xff",
    }


def test_nothing_but_the_three_descriptors_is_inherited(guest, client):
    other = guest.connect()
    client.open("exec", argv=["cat"], stdin=True)
    ended = client.run(sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    assert ended.stdout == b"[0, 1, 2]\n"
    other.close()


def test_signals_that_python_ignores_are_not_ignored_in_a_command(client):
    ended = sh(client, "grep -E 'Sig(Ign|Blk)' /proc/self/status")
    libc_own = 1 << 31 | 1 << 32  # 32 and 33, which libc lets nobody change
    assert [int(line.split()[1], 16) & ~libc_own for line in ended.stdout.splitlines()] == [0, 0]


def test_a_command_leads_its_own_session(client):
    script = "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))"
    assert client.run(sys.executable, "-c", script).stdout == b"True\n"


def test_a_command_starts_in_the_workdir_or_where_it_is_told(guest, client):
    os.mkdir(os.path.join(guest.workspace, "below"))
    assert sh(client, "pwd -P").stdout.strip().decode() == guest.workspace
    assert sh(client, "pwd -P", cwd="below").stdout.strip().decode() == guest.workspace + "/below"
    assert sh(client, "pwd -P", cwd="/").stdout.strip().decode() == guest.root


@pytest.mark.parametrize(("cwd", "number"), [("nowhere", 2), ("file", 20), ("../../../../nowhere", 2)])
def test_a_directory_that_is_not_there_is_an_error_with_its_errno(guest, client, cwd, number):
    with open(os.path.join(guest.workspace, "file"), "w"):
        pass
    error = sh(client, "true", cwd=cwd).error
    assert error["errno"] == number
    assert error["path"].startswith("/")


def test_a_program_that_is_not_there_is_told_as_a_shell_does(client):
    ended = client.run("no-such-program", "x")
    assert ended.ok["exit_code"] == 127
    assert ended.stderr == b"no-such-program: command not found\n"
    assert ended.events[0]["pid"] > 0


def test_a_file_that_cannot_be_executed_is_told_as_a_shell_does(guest, client):
    path = os.path.join(guest.workspace, "plain")
    with open(path, "w") as file:
        file.write("hello")
    assert client.run("./plain").ok["exit_code"] == 126
    os.chmod(path, 0o755)
    ended = client.run("./plain")
    assert ended.ok["exit_code"] == 126
    assert b"Exec format error" in ended.stderr


def test_a_script_whose_interpreter_is_missing_says_so(guest, client):
    path = os.path.join(guest.workspace, "script")
    with open(path, "w") as file:
        file.write("#!/no/such/interpreter\n")
    os.chmod(path, 0o755)
    ended = client.run("./script")
    assert ended.ok["exit_code"] == 127
    assert b"interpreter" in ended.stderr


def test_a_program_is_looked_for_on_the_path_of_the_request(guest, client):
    path = os.path.join(guest.workspace, "mine")
    with open(path, "w") as file:
        file.write("#!/bin/sh\necho found\n")
    os.chmod(path, 0o755)
    assert client.run("mine").ok["exit_code"] == 127
    assert client.run("mine", env={"PATH": guest.workspace + ":/usr/bin:/bin"}).stdout == b"found\n"


def test_what_is_of_no_use_on_the_path_is_passed_over(guest, client):
    """A directory with a file that cannot be executed, and a file where a directory should be."""
    directory = os.path.join(guest.workspace, "directory")
    os.mkdir(directory)
    with open(directory + "/mine", "w"):
        pass
    path = f"{directory}:{directory}/mine:/usr/bin:/bin"
    assert client.run("true", env={"PATH": path}).ok["exit_code"] == 0
    assert client.run("mine", env={"PATH": path}).ok["exit_code"] == 126
    for size in (None, [24, 80]):
        assert client.run("no-such-program", env={"PATH": path}, pty=size).ok["exit_code"] == 127


def test_without_a_command_the_shell_starts(client):
    channel = client.open("exec", stdin=True)
    client.data(channel, b"echo from the shell\n")
    client.eof(channel)
    assert client.finish(channel).stdout == b"from the shell\n"


@pytest.mark.parametrize(
    "request_",
    [
        {"argv": []},
        {"argv": [""]},
        {"argv": "true"},
        {"argv": ["true", 1]},
        {"argv": ["true\0"]},
        {"argv": ["\ud800"]},
        {"argv": ["true"], "env": {"A": 1}},
        {"argv": ["true"], "env": {"A=B": "1"}},
        {"argv": ["true"], "env": {"A": "\0"}},
        {"argv": ["true"], "timeout": "1"},
        {"argv": ["true"], "timeout": -1},
        {"argv": ["true"], "timeout": 1e400},
        {"argv": ["true"], "limit": -1},
        {"argv": ["true"], "limit": True},
        {"argv": ["true"], "pty": [0, 80]},
        {"argv": ["true"], "pty": "yes"},
        {"argv": ["true"], "stdin": 1},
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(client, request_):
    error = client.do("exec", **request_).error
    assert error["code"] == "invalid_input"
    assert error["message"].endswith(".")
    assert client.run("true").ok["exit_code"] == 0


def test_an_unknown_operation_is_refused(client):
    assert client.do("fly").error["code"] == "invalid_input"
    assert client.do(None).error["code"] == "invalid_input"


def test_a_timeout_kills_and_says_so_and_keeps_the_output(client):
    ended = sh(client, "echo before; exec sleep 60", timeout=0.2)
    assert ended.ok["exit_code"] == 124
    assert ended.ok["timed_out"] is True
    assert ended.stdout == b"before\n"
    assert ended.ok["duration"] < 30


def test_a_command_that_ends_in_time_is_not_timed_out(client):
    assert sh(client, "exit 9", timeout=60).ok["exit_code"] == 9


def test_a_command_that_ignores_every_signal_is_killed_at_its_timeout(client):
    ended = sh(client, "trap '' TERM INT HUP QUIT; while :; do sleep 1; done", timeout=0.2)
    assert ended.ok["exit_code"] == 124


def test_output_beyond_the_limit_is_dropped_and_the_command_goes_on(guest, client):
    ended = sh(client, "head -c 300000 /dev/zero; echo x >&2; touch done", limit=1000)
    assert len(ended.stdout) + len(ended.stderr) == 1000
    assert ended.ok["truncated"] is True
    assert ended.ok["exit_code"] == 0
    assert os.path.exists(os.path.join(guest.workspace, "done"))


def test_output_of_exactly_the_limit_is_whole(client):
    ended = sh(client, "printf 12345", limit=5)
    assert ended.stdout == b"12345"
    assert ended.ok["truncated"] is False


def test_a_background_process_that_keeps_the_pipes_does_not_hold_up_the_end(client):
    ended = sh(client, "echo early; sleep 60 & echo $! >&2")
    try:
        assert ended.stdout == b"early\n"
        assert ended.ok["duration"] < 30
        os.kill(int(ended.stderr), 0)
    finally:
        os.kill(int(ended.stderr), signal.SIGKILL)


def test_a_chatty_background_process_does_not_hold_up_the_end_either(client):
    ended = sh(client, "yes & echo $! >&2", limit=1 << 30)
    with contextlib.suppress(ProcessLookupError):  # nobody reads what it says any more, which may have ended it
        os.kill(int(ended.stderr), signal.SIGKILL)
    assert ended.ok["exit_code"] == 0
    assert set(ended.stdout) <= set(b"y\n")


def test_large_input_and_output_at_once(client):
    content = os.urandom(1 << 20) * 64
    ended = client.upload("exec", content, argv=["cat"], stdin=True)
    assert ended.stdout == content
    assert ended.ok["exit_code"] == 0


def test_a_child_that_closes_its_input_early_is_no_error(client):
    ended = client.upload(
        "exec", bytes(5 << 20), argv=[SH, "-c", "exec <&-; echo closed; sleep 0.2; exit 4"], stdin=True
    )
    assert ended.stdout == b"closed\n"
    assert ended.ok["exit_code"] == 4


def test_without_stdin_a_command_reads_nothing(client):
    assert client.run("cat").stdout == b""


def test_a_signal_reaches_the_process_or_the_whole_tree(client):
    script = "trap 'echo got; exit 5' USR1; echo up; while :; do sleep 0.05; done"
    channel = client.open("exec", argv=[SH, "-c", script])
    client.event(channel)
    assert client.receive().payload == b"up\n"
    client.call(channel, signal=signal.SIGUSR1)
    ended = client.finish(channel)
    assert ended.stdout == b"got\n"
    assert ended.ok["exit_code"] == 5
    channel = client.open("exec", argv=[SH, "-c", "sleep 60 & sleep 60"])
    client.event(channel)
    client.call(channel, signal=signal.SIGTERM, tree=True)
    assert client.finish(channel).ok["exit_code"] == 128 + signal.SIGTERM


def test_calls_that_make_no_sense_are_refused_or_ignored(client):
    channel = client.open("exec", argv=["cat"], stdin=True)
    client.event(channel)
    client.call(channel, dance=True)
    client.call(channel, resize=[10, 10])
    client.data(channel, b"still here")
    client.eof(channel)
    assert client.finish(channel).stdout == b"still here"


def test_a_process_is_signalled_by_pid(client):
    channel = client.open("exec", argv=["sleep", "60"])
    pid = client.event(channel)["pid"]
    assert client.do("signal", pid=pid, signal=15).ok == {}
    assert client.finish(channel).ok["exit_code"] == 143


@pytest.mark.parametrize("pid", [1, os.getpid(), 2**31], ids=["first", "own", "none"])
def test_a_process_outside_is_not_signalled(client, pid):
    error = client.do("signal", pid=pid, signal=signal.SIGKILL, tree=True).error
    assert error["code"] == "invalid_input"
    assert client.do("signal", pid=pid, signal=0).error["code"] == "invalid_input"


def test_a_process_that_a_command_started_is_signalled_with_what_is_below_it(client):
    channel = client.open("exec", argv=[SH, "-c", "sh -c 'sleep 60 & sleep 60; true' & echo $!; wait"])
    client.event(channel)
    below = int(client.receive().payload)
    client.do("signal", pid=below, signal=signal.SIGKILL, tree=True)
    assert client.finish(channel).ok["exit_code"] == 0
    eventually(lambda: client.do("processes").ok["processes"] == [])


def test_processes_are_listed_with_what_they_use(client):
    channel = client.open("exec", argv=[SH, "-c", "sleep 61 & wait"])
    pid = client.event(channel)["pid"]
    rows = eventually(lambda: _two(client))
    own = next(row for row in rows if row["pid"] == pid)
    other = next(row for row in rows if row["pid"] != pid)
    assert own["started_by_api"] is True
    assert own["command"] == "/bin/sh -c sleep 61 & wait"
    assert other["command"] == "sleep 61"
    assert other["parent"] == pid
    assert other["started_by_api"] is False
    assert own["memory"] > 0
    assert own["cpu_seconds"] >= 0
    assert own["state"] in "RSD"
    client.cancel(channel)
    client.finish(channel)
    assert client.do("processes").ok["processes"] == []


def _two(client):
    rows = client.do("processes").ok["processes"]
    return rows if len(rows) == 2 and "sleep 61" in [row["command"] for row in rows] else None


def test_orphans_leave_no_zombies_and_descriptors_do_not_leak(guest, client):
    def descriptors():
        return len(os.listdir(f"/proc/{guest.process.pid}/fd"))

    sh(client, "true")
    before = descriptors()
    for _ in range(20):
        sh(client, "(sleep 0.01 &) ; true", stdin=True)
        client.run("no-such-program")
        sh(client, "true", pty=[24, 80])
    assert eventually(lambda: descriptors() == before)
    children = f"/proc/{guest.process.pid}/task/{guest.process.pid}/children"
    eventually(lambda: _text(children) == "")


def _text(path):
    with open(path) as file:
        return file.read()


def test_commands_are_started_in_turn_without_waiting_for_each_other(client):
    meet = "touch here-$$; until [ $(ls here-* | wc -l) = 10 ]; do sleep 0.02; done"
    channels = [client.open("exec", argv=[SH, "-c", meet]) for _ in range(10)]
    for channel in channels:
        assert client.finish(channel).ok["exit_code"] == 0


def test_a_sandbox_without_processes_left_says_so(tmp_path, guest, client):
    limit = resource.prlimit(guest.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(guest.process.pid, resource.RLIMIT_NOFILE, (9, limit[1]))
    error = client.run("true").error
    assert error["code"] == "busy"
    resource.prlimit(guest.process.pid, resource.RLIMIT_NOFILE, limit)
    assert client.run("true").ok["exit_code"] == 0
