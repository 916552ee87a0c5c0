"""`atoll validate`, as it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from atoll.validation import status

SCRIPT = os.path.join(os.path.dirname(sys.executable), "atoll")


def atoll(*words, stdin=b"", cwd=None):
    command = [SCRIPT, "validate", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False, cwd=cwd)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["echo hi"], 0, "passed behind jail."),
        (["exit 7"], 1, "failed behind jail. Its exit code is 7."),
        (["-t", "0.2", "sleep 100"], 124, "timed_out behind jail."),
        (["--", "printf", "%s|", "a b", "c"], 0, "passed"),
        (["--code", "raise SystemExit(2)"], 1, "Its exit code is 2."),
        (["--source", "/no/such", "true"], 125, " error. The source /no/such cannot be opened"),
        (["--output", "a", "--output", "b", "touch a b"], 0, "b  sha256:e3b0c442"),
        (["-e", "X=1", "--memory", "64M", "--name", "mine", 'test "$X" = 1'], 0, "passed"),
    ],
)
def test_run(words, code, told):
    found = atoll("run", "-p", "jail", *words)
    assert found[0] == code
    assert told in found[2]


def test_options_end_at_the_first_word_of_the_command():
    code, out, _ = atoll("run", "-p", "jail", "--json", "printf", "%s,", "--memory", "-e", "--", "x")
    assert (code, json.loads(out)["stdout"]) == (0, "--memory,-e,--,x,")


def test_a_program_comes_from_standard_input():
    assert atoll("run", "-p", "jail", "--code", "-", stdin=b"print(6 * 7)")[:2] == (0, "42\n")


def test_begin_status_wait_list_cancel_delete():
    code, out, _ = atoll("begin", "-p", "jail", "--name", "long", "sleep 1000")
    id = out.strip()
    assert code == 0
    assert f"{id} is running, by the process" in atoll("status", id[3:9])[2]
    assert atoll("cancel", id) == (0, f"{id}  cancelled\n", "")
    assert atoll("wait", id)[0] == 130
    head, line = atoll("list")[1].splitlines()
    assert head.split() == ["ID", "STATE", "AGE", "WALL", "TOOK", "WHAT"]
    assert [line.split()[index] for index in (0, 1, -1)] == [id, "cancelled", "long"]
    (listed,) = json.loads(atoll("list", "--json")[1])
    assert (listed["id"], listed["state"], listed["result"]["verdict"]) == (id, "cancelled", "cancelled")
    assert atoll("delete", id)[1] == f"{id}\n"
    assert atoll()[1].count("\n") == 1
    assert "There is no job" in atoll("delete", id)[2]


def test_verify_and_gate(tmp_path):
    file = tmp_path / "result.json"
    assert atoll("run", "-p", "jail", "-o", str(file), "echo hi")[0] == 0
    id = json.loads(file.read_text())["id"]
    assert atoll("verify", id, str(file), "--rerun")[1].count(f"{id}  intact, and the same again: passed\n") == 2
    assert atoll("gate", id[:8], str(file), "--max-age", "1d")[:2] == (0, "open: 2 passed\n")
    file.write_text(file.read_text().replace('"echo hi"', '"echo ho"'))
    assert atoll("verify", str(file))[0] == 1
    code, out, err = atoll("gate", id, str(file))
    assert (code, out) == (1, "")
    assert "Its seal is broken" in err
    failed = json.loads(atoll("run", "-p", "jail", "--json", "false")[1])
    assert "It is failed." in atoll("gate", failed["id"])[2]


def test_a_file_is_of_the_job_that_is_said_and_an_id_is_no_file(tmp_path):
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        assert atoll("run", "-p", "jail", "-o", str(file), "true")[0] == 0
    one, two = (json.loads(file.read_text())["id"] for file in files)
    assert atoll("gate", f"{one}={files[0]}", f"{two}={files[1]}")[1] == "open: 2 passed\n"
    for action in ("gate", "verify"):
        code, _, err = atoll(action, f"{one}={files[1]}")
        assert (code, f"It is the result of the job {two}, and not of {one}." in err) == (1, True)
    assert "name it once" in atoll("gate", f"{one}={files[0]}", str(files[0]))[2]
    bad = json.loads(atoll("run", "-p", "jail", "--json", "false")[1])["id"]
    (tmp_path / bad).write_bytes(files[0].read_bytes())
    code, out, err = atoll("gate", bad, cwd=tmp_path)
    assert (code, out) == (1, "")
    assert "It is failed." in err
    assert atoll("gate", f"./{bad}", cwd=tmp_path)[0] == 0


def test_diagnose_and_recover():
    code, out, _ = atoll("diagnose", "-p", "fake,jail", "true")
    assert (code, out.splitlines()[0]) == (0, "jail would be used, after fake (it has no network none).")
    assert json.loads(atoll("diagnose", "-p", "jail", "--json", "true")[1])["chosen"] == "jail"
    assert atoll("recover")[:2] == (0, "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fly"], "There is no action 'fly'"),
        (["run"], "Say what to run"),
        (["run", "--code", "1", "true"], "either --code or a command"),
        (["status"], "atoll validate status ID"),
        (["gate"], "atoll validate gate ID"),
        (["list", "x"], "without 'x'"),
        (["list", "--", "x"], "Nothing may follow"),
        (["run", "-t", "soon", "true"], "--timeout is 'soon'"),
        (["verify", "vj-none"], "There is no job 'vj-none', and no such file."),
        (["gate", "nope.json"], "There is no job 'nope.json', and no such file."),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(words, sentence):
    code, out, err = atoll(*words)
    assert (code, out) == (125, "")
    assert sentence in err


def test_control_characters_are_not_sent_to_a_terminal():
    import pty

    id = json.loads(atoll("run", "-p", "jail", "--json", "printf '\\033]0;mine\\007red\\n'")[1])["id"]
    assert status(id).result.stdout == "\x1b]0;mine\x07red\n"
    main, side = pty.openpty()
    with subprocess.Popen([SCRIPT, "validate", "status", id], stdout=side, stderr=subprocess.DEVNULL) as process:
        os.close(side)
        assert process.wait(60) == 0
    shown = os.read(main, 65536)
    os.close(main)
    assert b"\x1b]" not in shown
    assert b"red" in shown
