"""`atoll run` with commands: streams, codes, options, and nothing left behind."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import time

import pytest

from atoll import Codebases

from .conftest import stop


def test_output_errors_and_exit_code_are_the_commands_own(atoll):
    done = atoll("run", "echo out; echo err >&2; exit 3")
    assert done == (3, b"out\n", "err\n")


def test_words_after_two_dashes_do_not_pass_through_a_shell(atoll):
    assert atoll("run", "--", "echo", "$HOME", "-e", "a;b").out == b"$HOME -e a;b\n"
    assert atoll("run", "echo", "$HOME").out == b"$HOME\n"
    assert atoll("run", "echo $HOME").out == b"/home/user\n", "one word is for the shell"


def test_options_end_at_the_first_word_of_the_command(atoll, tmp_path):
    assert atoll("run", "sort", "-n", input=b"10\n9\n").out == b"9\n10\n"
    assert atoll("run", "echo", "-n", "hi").out == b"hi"
    assert atoll("run", "grep", "-e", "A=1", input=b"A=1\nB\n").out == b"A=1\n"
    (tmp_path / "a.py").write_text("text\n")
    assert atoll("run", "--source", str(tmp_path), "head", "-f", "a.py").err.startswith("head: invalid option -- 'f'")
    shown = ("--source", str(tmp_path), "--preset", "full-access")
    assert atoll("run", *shown, "ls", "-1a").out == b".\n..\na.py\n"
    assert atoll("run", "printf", "%s,", "a", "--", "-e", "--keep").out == b"a,--,-e,--keep,"
    own = ("-e", "A=1", "-nt5", "--memory=64M")
    assert atoll("run", *own, "sh", "-c", "echo $A $0 $1", "-t", "-l").out == b"1 -t -l\n"


def test_an_option_after_a_command_that_failed_is_told(atoll):
    done = atoll("run", "ls", "--memory", "1G")
    assert (done.code, done.out) == (2, b"")
    assert done.err.endswith(
        "atoll: --memory came after the command, and so it is the command's; options of atoll come before it.\n"
    )
    assert "was taken for the name of a program" in atoll("run", "ls -la", "-t", "5").err
    assert atoll("run", "echo", "--memory").err == "", "a command that takes it is left alone"
    assert "atoll:" not in atoll("run", "--", "ls", "--memory").err, "whoever writes -- knows"


def test_all_that_came_of_a_command_is_one_json_object(atoll):
    done = atoll("run", "--json", "cat; echo err >&2; exit 3", input=b"in")
    told = json.loads(done.out)
    assert (done.code, done.err) == (3, "")
    assert told.pop("id").startswith("sb-")
    assert told.pop("duration") > 0
    assert told == {
        "success": False, "exit_code": 3, "stdout": "in", "stderr": "err\n", "timed_out": False, "truncated": False,
        "out_of_memory": False, "hint": None,
    }  # fmt: skip
    bytes_ = json.loads(atoll("run", "--json", "printf '\\377'").out)
    assert (bytes_["stdout"], bytes_["stdout_base64"]) == ("\ufffd", "/w==")
    late = atoll("run", "--json", "-t", "0.3", "--", "sleep", "60")
    assert (late.code, json.loads(late.out)["timed_out"]) == (124, True)


def test_a_command_that_is_killed_for_its_memory_is_told(atoll):
    code = "x = 'a' * 10**9"
    for command in (["--", "python3", "-c", code], [f'python3 -c "{code}"; exit $?']):
        done = atoll("run", "--memory", "64M", *command)
        assert done.code == 137
        assert "atoll: The command was killed for its memory. This sandbox has 64M of memory; " in done.err
        assert done.err.endswith("(--memory) gives a new one more.\n")
    assert "memory" not in atoll("run", "kill -9 $$").err, "another kill is not taken for it"


def test_a_command_that_fails_for_want_of_a_network_is_told(atoll):
    lookup = "import socket, sys\ntry: socket.getaddrinfo('example.com', 80)\nexcept OSError as e: sys.exit(str(e))"
    hint = "atoll: This sandbox has no network; network='all' (--network all)"
    done = atoll("run", "--", "python3", "-c", lookup)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(hint)
    assert hint in atoll("run", "curl() { return 6; }; curl -s https://example.com").err, "that says nothing itself"
    assert hint not in atoll("run", "--", "python3", "-c", lookup.replace("sys.exit", "print")).err
    for open_to_all in (["--network", "host"], ["-p", "fake"]):
        assert hint not in atoll("run", *open_to_all, "echo Could not resolve host; exit 6").err
    assert hint not in atoll("run", "echo the network; exit 1").err


def test_every_byte_passes_unchanged_both_ways(atoll):
    data = bytes(range(256)) * 2000
    assert atoll("run", "cat", input=data).out == data
    assert atoll("run", "cat >&2; printf '\\377\\0'", input=b"x").out == b"\xff\0"


def test_output_comes_while_the_command_runs_and_input_reaches_it(atoll):
    process = atoll.start("run", "echo first; read line; echo got $line")
    assert process.stdout.readline() == b"first\n"
    process.stdin.write(b"second\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"got second\n"
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 0


def test_input_that_never_ends_does_not_hold_up_a_command_that_does(atoll):
    process = atoll.start("run", "echo done")
    assert process.stdout.read() == b"done\n"
    assert process.wait(60) == 0


def test_without_stdin_the_input_stays_for_the_caller(atoll):
    assert atoll("run", "-n", "cat", input=b"mine").out == b""
    assert atoll("run", "cat", input=b"yours").out == b"yours"


def test_variables_are_set_and_passed_on(atoll):
    done = atoll("run", "-e", "A=1=2", "--env", "MINE", "-e", "EMPTY=", "echo $A $MINE ${EMPTY-unset}.",
                 env={"MINE": "own value", "SECRET": "no"})  # fmt: skip
    assert done.out == b"1=2 own value .\n"
    assert atoll("run", "echo ${SECRET-unset}", env={"SECRET": "no"}).out == b"unset\n"


def test_a_timeout_is_124_and_a_sentence(atoll):
    done = atoll("run", "-t", "0.3", "echo before; sleep 60")
    assert (done.code, done.out) == (124, b"before\n")
    assert (
        done.err
        == "atoll: The command ran out of time after 0.3 s and was killed. A longer timeout= (-t) gives it more time.\n"
    )


def test_a_command_that_itself_ends_with_124_is_no_timeout(atoll):
    assert atoll("run", "exit 124") == (124, b"", "")


@pytest.mark.parametrize(
    ("command", "code"),
    [("kill -9 $$", 137), ("kill -TERM $$", 143), ("no-such-command", 127), ("/etc/passwd", 126)],
)
def test_signals_and_missing_commands_have_the_codes_of_a_shell(atoll, command, code):
    assert atoll("run", command).code == code


def test_a_missing_program_is_127(atoll):
    done = atoll("run", "--", "no-such-program")
    assert (done.code, done.err) == (127, "no-such-program: command not found\n")


def test_a_source_shows_no_secrets_unless_all_of_it_is_asked_for(atoll, tmp_path):
    (tmp_path / ".env").write_text("SECRET=1\n")
    run = ("run", "--source", str(tmp_path))
    assert atoll(*run, "cat .env").out == b""
    assert atoll(*run, "--hide", "docs", "cat .env").out == b""
    assert atoll(*run, "--preset", "full-access", "cat .env").out == b"SECRET=1\n"


def test_the_source_is_the_workspace_and_stays_as_it_is(atoll, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("from the host\n")
    done = atoll(
        "run",
        "--source",
        str(tmp_path),
        "--preset",
        "full-access",
        "cat sub/a; echo changed > sub/a; cat sub/a; rm -r sub; ls | wc -l",
    )
    assert done.out == b"from the host\nchanged\n0\n"
    assert (tmp_path / "sub" / "a").read_text() == "from the host\n"


def test_a_workdir_is_in_the_workspace_or_a_workspace_elsewhere(atoll, tmp_path):
    (tmp_path / "sub").mkdir()
    run = ("run", "--source", str(tmp_path), "--preset", "full-access", "--workdir")
    assert atoll(*run, "sub", "pwd").out == b"/workspace/sub\n"
    assert atoll(*run, "/workspace/sub", "pwd").out == b"/workspace/sub\n"
    assert atoll(*run, "/srv/app", "pwd; ls").out == b"/srv/app\nsub\n"
    missing = atoll(*run, "nowhere", "pwd")
    assert missing.code == 125
    assert "nowhere" in missing.err


def test_limits_and_wishes_reach_the_sandbox(atoll):
    wishes = {"memory": "128M", "pids": "50", "disk": "64M", "lifetime": "2h", "network": "host"}
    words = [word for name, value in wishes.items() for word in (f"--{name}", value)]
    made = atoll("run", "--keep", "-l", "team=red", "-l", "n=1", *words, "true")
    (info,) = json.loads(atoll("list", "--json").out)
    assert info["id"] == made.err.split()[-1]
    assert info["resources"] == {"memory": 128 << 20, "cpu": None, "pids": 50, "disk": 64 << 20}
    assert info["labels"] == {"team": "red", "n": "1"}
    assert info["network"] == "host"
    assert 7100 < info["expires"] - info["created"] <= 7200
    assert atoll("destroy", info["id"]).code == 0


def test_a_kept_sandbox_is_told_of_on_stderr_and_can_be_used_again(atoll):
    made = atoll("run", "--keep", "echo here > file; exit 4")
    assert made.code == 4, "a command that fails is no reason to throw its sandbox away"
    id = made.err.split()[-1]
    assert atoll.sandboxes() == [id]
    assert atoll("exec", id, "cat file").out == b"here\n"
    assert atoll("destroy", id).out == f"{id}\n".encode()


def test_a_run_that_atoll_fails_keeps_nothing(atoll):
    failed = atoll("run", "--keep", "--workdir", "nowhere", "true")
    assert failed.code == 125
    assert "was destroyed" in failed.err
    assert atoll.sandboxes() == []


def test_labels_find_the_same_sandbox_again(atoll):
    assert atoll("run", "--reuse", "-l", "job=a", "echo 1 >> f") == (0, b"", "")
    assert atoll("run", "--reuse", "-l", "job=a", "echo 2 >> f; cat f").out == b"1\n2\n"
    assert atoll("run", "--reuse", "-l", "job=b", "cat f").code == 1, "other labels are another sandbox"
    assert atoll("destroy", "-l", "job=a").code == atoll("destroy", "-l", "job=b").code == 0


def test_a_found_sandbox_that_is_not_as_asked_for_is_refused(atoll):
    assert atoll("run", "--reuse", "-l", "job=a", "--memory", "256M", "true").code == 0
    assert atoll("run", "--reuse", "-l", "job=a", "--memory", "256M", "true").code == 0
    refused = atoll("run", "--reuse", "-l", "job=a", "--memory", "1G", "true")
    assert refused.code == 125
    assert "was made with memory 256M. Leave --memory out, or end it first: atoll destroy sb-" in refused.err
    assert "made with driver jail" in atoll("run", "--reuse", "-l", "job=a", "-p", "fake", "true").err
    assert "made with source None" in atoll("run", "--reuse", "-l", "job=a", "--source", ".", "true").err
    assert atoll("destroy", "--all", "-y").code == 0


def test_a_found_sandbox_with_other_rules_or_another_tree_is_refused(atoll, tmp_path):
    def again(*words):
        return atoll("run", "--reuse", "-l", "job=a", *words, "true", cwd=tmp_path)

    codebases = Codebases()
    ids = [codebases.create(name, tmp_path).id for name in ("one", "other")]
    assert again("--codebase", "one", "--preset", "agent-safe", "--ignore", "*.log").code == 0
    assert again("--codebase", ids[0], "--preset", "agent-safe", "--ignore", "*.log").code == 0
    assert f"made with codebase {ids[0]}" in again("--codebase", "other").err
    assert "made with preset agent-safe" in again("--codebase", "one", "--preset", "full-access").err
    assert "made with ignore ('*.log',)" in again("--codebase", "one", "--ignore", "*.key").err
    assert atoll("destroy", "--all", "-y").code == 0
    for id in ids:
        codebases.delete(id)


def test_another_driver_can_be_chosen(atoll):
    assert atoll("run", "-p", "fake", "echo hi").out == b"hi\n"
    assert atoll("run", "echo hi", env={"ATOLL_DRIVER": "fake"}).out == b"hi\n"
    unknown = atoll("run", "-p", "jial", "true")
    assert unknown.code == 125
    assert "Did you mean 'jail'?" in unknown.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_kills_what_runs_and_leaves_no_sandbox(atoll, number, code):
    process = atoll.start("run", "echo up; sleep 1000")
    assert process.stdout.readline() == b"up\n"
    assert stop(process, number) == (code, b"", "")
    assert atoll.sandboxes() == []


def test_ctrl_c_while_the_sandbox_is_made_leaves_none(atoll):
    def written():
        """When the registry was last written to."""
        times = [os.stat(path).st_mtime_ns for path in glob.glob(f"{atoll.home}/registry.db*")]
        return max(times, default=0)

    before, deadline = written(), time.monotonic() + 60
    process = atoll.start("run", "-n", "sleep 1000")
    # The moment the registry is written to is the latest at which nobody yet holds the sandbox.
    while written() == before:
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    assert stop(process) == (130, b"", "")


def test_ctrl_c_keeps_a_sandbox_that_is_to_stay(atoll):
    process = atoll.start("run", "--keep", "echo up; exec sleep 1000")
    assert process.stdout.readline() == b"up\n"
    code, _, err = stop(process)
    id = err.split()[-1]
    assert code == 130
    assert atoll("exec", id, "echo alive").out == b"alive\n"
    assert atoll("destroy", id).code == 0


def test_a_reader_that_has_seen_enough_ends_it_quietly(atoll):
    process = atoll.start("run", "-n", "yes")
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_output_that_cannot_be_written_is_an_error(atoll):
    with open("/dev/full", "wb") as full:
        process = atoll.start("run", "-n", "echo hi", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 125
    assert err == b"atoll: The output cannot be written: No space left on device.\n"


def test_closed_descriptors_harm_nobody(atoll):
    shell = f'{atoll.script} run "echo hi; echo err >&2; cat" >&- 2>&- <&-'
    assert subprocess.run(["sh", "-c", shell], env=atoll.env(), timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "There is nothing to run"),
        ([" "], "There is nothing to run"),
        (["--"], "There is nothing to run"),
        (["--memory", "lots", "true"], "memory is 'lots', which is no size; write it like '512M'"),
        (["--memory", "1K", "true"], "a sandbox needs at least 16M"),
        (["--cpu", "many", "true"], "--cpu is 'many'; give a number"),
        (["--cpu", "0", "true"], "cpu is 0.0; give cores from 0.01"),
        (["--pids", "-1", "true"], "--pids is '-1'; give a whole number"),
        (["--pids", "1.5", "true"], "--pids is '1.5'; give a whole number"),
        (["--network", "wifi", "true"], "network is 'wifi'; give 'none', 'all' or 'host'"),
        (["--source", "/no/such/dir", "true"], "is not a directory"),
        (["--image", "/no/such/image", "true"], "neither a directory nor a tar archive"),
        (["--workdir", "/proc/x", "true"], "where no workspace can be"),
        (["--lifetime", "0", "true"], "--lifetime is '0'; give seconds above 0"),
        (["-t", "soon", "true"], "--timeout is 'soon'; give seconds above 0, or a time such as 90s"),
        (["-t", "99d", "true"], "at most"),
        (["-e", "NOT_SET_HERE", "true"], "there is no such variable here to pass on"),
        (["-e", "=x", "true"], "a name is text, not empty"),
        (["-l", "nokey", "true"], "The label 'nokey' has no '='; write it as key=value."),
        (["-l", "-=x", "true"], "expected one argument"),
        (["--reuse", "true"], "--reuse finds a sandbox by its labels"),
        (["--colour", "true"], "Unrecognized arguments: --colour"),
        (["--memry", "1G", "true"], "Unrecognized arguments: --memry. Did you mean --memory?"),
        (["-it", "python3"], "--tty needs a terminal, as input and as output"),
        (["-t", "python3", "x"], "For a terminal write -it, or nothing"),
        (["--rm", "true"], "A sandbox is gone afterwards unless you say --keep."),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_125(atoll, words, sentence):
    done = atoll("run", *words)
    assert done.code == 125
    assert done.out == b""
    assert done.err.startswith("atoll: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err
