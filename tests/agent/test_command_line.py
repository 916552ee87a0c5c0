"""`atoll agent`, `ask` and `resume`, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.playedmodel import PlayedModel, calls, fails, says

from atoll import Sandbox
from atoll.agent import journal

ATOLL = os.path.join(os.path.dirname(sys.executable), "atoll")


def atoll(*words, stdin="", **environment):
    env = {**os.environ, "NO_COLOR": "1", **environment}
    return subprocess.run(
        [ATOLL, *words], input=stdin, capture_output=True, text=True, timeout=120, check=False, env=env
    )


@pytest.fixture
def url():
    """A server whose script is given afterwards."""
    servers = []

    def start(script):
        servers.append(PlayedModel(script).start())
        return servers[-1].url

    yield start
    for server in servers:
        server.stop()


def test_the_answer_alone_is_on_stdout(url):
    at = url([calls(("run_code", {"code": "6 * 7"})), says("42")])
    done = atoll("agent", "-m", "played", "--base-url", at, "how much?")
    assert (done.returncode, done.stdout) == (0, "42\n")
    lines = done.stderr.splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [
        ["1", "✓", "model"],
        ["2", "✓", "run_code"],
        ["3", "✓", "model"],
    ]
    assert "completed" in lines[3]
    assert "cost unknown" in lines[3]


def test_quiet_and_json(url):
    at = url([says("42", usage=(5, 1))])
    assert atoll("ask", "-m", "played", "--base-url", at, "-q", "how", "much?").stderr == ""
    found = json.loads(atoll("ask", "-m", "played", "--base-url", at, "--json", "much?").stdout)
    assert found["id"] == found["trajectory_id"]
    assert found["response"] == "42"
    assert found["usage"]["prompt_tokens"] == 5
    assert found["cost"] is None
    assert found["success"]


def test_a_long_context_comes_from_a_file_or_a_pipe(url, tmp_path):
    (tmp_path / "long.txt").write_text("word " * 1000)
    at = url([calls(("run_code", {"code": "FINAL(str(len(context)))"}))])
    done = atoll("ask", "-m", "played", "--base-url", at, "-q", "--context", str(tmp_path / "long.txt"), "long?")
    assert done.stdout == "5000\n"
    assert atoll("ask", "-m", "played", "--base-url", at, "-q", "--context", "-", "long?", stdin="abc").stdout == "3\n"
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    done = atoll("ask", "-m", "played", "--base-url", at, "--context", str(tmp_path / "bytes"), "long?")
    assert done.returncode == 125
    assert "no UTF-8" in done.stderr


def test_a_limit_and_a_check_are_told_and_exit_with_1(url):
    at = url([says("so far")] * 5)
    done = atoll("agent", "-m", "played", "--base-url", at, "--max-iterations", "2", "--validate", "false", "go")
    assert (done.returncode, done.stdout) == (1, "so far\n")
    assert "limit max_iterations was reached" in done.stderr
    assert "check not passed" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["agent"], "Say what is to be done"),
        (["ask", "x"], "ATOLL_MODEL"),
        (["agent", "x", "-m", "m", "--max-depth", "9"], "max_depth"),
        (["agent", "x", "-m", "m", "--preset", "agent-safe"], "--source"),
        (["agent", "x", "-m", "m", "--validate", "a", "--validate-code", "b"], "not both"),
        (["resume", "tr-nothing"], "no trajectory"),
        (["resume", "tr-a", "tr-b"], "one at a time"),
        (["resume", "sb-a", "--at", "3"], "tr-"),
        (["resume", "tr-a", "--say", "x"], "--at"),
    ],
)
def test_mistakes_get_a_sentence(words, complaint):
    done = atoll(*words, ATOLL_MODEL="")
    assert done.returncode == 125
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_killed_and_resumed_from_another_process(url):
    at = url(
        [
            calls(("run_code", {"code": "import time\nn = 1\ntime.sleep(1.5)"})),
            calls(("run_code", {"code": "FINAL(str(n))"})),
        ]
    )
    process = subprocess.Popen(
        [ATOLL, "agent", "-m", "played", "--base-url", at, "wait"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    kept, deadline = journal.shared(), time.monotonic() + 30
    while time.monotonic() < deadline:
        runs = kept.runs(limit=1)
        if runs and any(step.name == "run_code" for step in kept.steps(runs[0].id)):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    id = kept.runs(limit=1)[0].id
    assert "interrupted" in atoll("logs").stdout
    done = atoll("resume", id[:12])
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    again = atoll("resume", id)
    assert again.returncode == 125
    assert "has ended" in again.stderr
    line = atoll("resume", id, "--at", "2", "--say", "again")
    assert (line.returncode, line.stdout) == (0, "1\n")


def test_ctrl_c_says_how_to_go_on(url):
    at = url([calls(("run_code", {"code": "import time; time.sleep(60)"})), says("x")])
    process = subprocess.Popen(
        [ATOLL, "agent", "-m", "played", "--base-url", at, "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stderr.readline()
    assert "model" in first
    time.sleep(0.3)  # within the cell, most of the time; before it is fine, too
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "atoll resume tr-" in said


def test_detached_it_outlives_the_command(url):
    at = url([calls(("run_code", {"code": "FINAL('far away')"}))])
    done = atoll("agent", "-m", "played", "--base-url", at, "--detach", "go")
    id = done.stdout.strip()
    kept, deadline = journal.shared(), time.monotonic() + 60
    while kept.run(id).state not in journal.FINAL and time.monotonic() < deadline:
        time.sleep(0.05)
    assert kept.run(id).state == "completed", kept.run(id)
    assert kept.run(id).result["response"] == "far away"


def test_a_model_that_refuses_loses_nothing(url):
    at = url([[fails(401, "who are you?"), says("ok")]])
    done = atoll("ask", "-m", "played", "--base-url", at, "go")
    assert done.returncode == 125
    assert "401" in done.stderr
    id = done.stderr.split("atoll resume ")[1].split("`")[0]
    assert atoll("resume", "-q", id).stdout == "ok\n"


def test_a_source_is_kept_for_review(url, tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    at = url([calls(("write_file", {"path": "a.txt", "content": "new\n"})), says("ok")])
    done = atoll(
        "agent", "-m", "played", "--base-url", at, "--source", str(tmp_path), "--preset", "development", "change it"
    )
    id = done.stderr.split("atoll diff ")[1].split("`")[0]
    try:
        assert "+new" in atoll("diff", id).stdout
        assert atoll("apply", id, "--yes").returncode == 0
        assert (tmp_path / "a.txt").read_text() == "new\n"
    finally:
        Sandbox.connect(id).destroy()
