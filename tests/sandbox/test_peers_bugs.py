"""Bugs of other sandboxes, each by its name in the list that they were collected in, that atoll must not have."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from atoll import InvalidInput, Sandbox
from atoll.errors import AtollError


@pytest.fixture
def run(sandbox):
    context = "c" + os.urandom(6).hex()
    yield lambda code, **options: sandbox.run_code(code, context=context, **options)
    sandbox.contexts.delete(context)


def test_streaming_that_runs_to_the_end_and_then_slices_the_output(sandbox, run):
    gate = os.urandom(4).hex()
    heard = []

    def hear(text):
        heard.append(text)
        sandbox.files.write(gate, "")

    code = f"import os, time\nprint('first')\nwhile not os.path.exists({gate!r}): time.sleep(0.01)\nprint('second')"
    assert not run(code, on_stdout=hear, timeout=20).timed_out
    assert "".join(heard) == "first\nsecond\n"


def test_success_after_a_timeout(run):
    done = run("while True: pass", timeout=0.3)
    assert (done.success, done.timed_out) == (False, True)
    assert run("1").success


def test_success_after_the_kernel_died(run):
    done = run("import os\nos._exit(0)")
    assert (done.success, done.state_lost) == (False, True)
    assert done.error.name == "ContextDied"


def test_success_after_five_megabytes_of_output_were_dropped(run):
    cut = run("print('x' * 5_000_000)", max_output=1_000_000)
    assert (len(cut.stdout), cut.truncated, cut.error, cut.success) == (1_000_000, True, None, False)
    whole = run("print('x' * 5_000_000)")
    assert (len(whole.stdout), whole.truncated, whole.success) == (5_000_001, False, True)


def test_interrupt_that_returns_false(sandbox, run, eventually):
    gate = os.urandom(4).hex()
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(run(f"open({gate!r}, 'w')\nwhile True: pass", timeout=60)))
    thread.start()
    eventually(lambda: sandbox.files.exists(gate))
    (busy,) = [each for each in sandbox.contexts.list() if each.busy]
    assert sandbox.contexts.interrupt(busy) is True
    thread.join(30)
    assert outcome[0].error.name == "KeyboardInterrupt"
    assert sandbox.contexts.interrupt(busy) is False


def test_contexts_that_share_variables(sandbox):
    for _turn in range(2):
        sandbox.run_code("mine = 'a'", context="a")
        assert sandbox.run_code("'mine' in globals()", context="b").text == "False"
    assert sandbox.run_code("mine", context="a").text == "'a'"


def test_env_that_is_silently_ignored(run):
    assert run("import os\nos.environ['WORD']", env={"WORD": "w"}).text == "'w'"
    assert run("os.environ['WORD']", env={"WORD": "v"}).text == "'v'"
    assert run("'WORD' in os.environ").text == "False"
    with pytest.raises(InvalidInput):
        run("1", env={"a=b": "c"})


@pytest.mark.parametrize("policy", ["nothing at all", "allowlist", ["example.com"]])
def test_a_network_policy_that_is_silently_ignored(policy):
    with pytest.raises(AtollError):
        Sandbox.create("fake", network=policy, labels={"network": "refused"})
    assert Sandbox.list({"network": "refused"}) == []


def test_code_that_runs_twice_when_its_last_expression_raises(run):
    run("calls = []\ndef f():\n    calls.append(1)\n    raise ValueError")
    assert run("f()").error.name == "ValueError"
    assert run("1; f()").error.name == "ValueError"
    assert run("len(calls)").text == "2"


def test_stdout_that_is_always_empty(run):
    assert run("print('there')").stdout == "there\n"
    assert run("import subprocess\nsubprocess.run(['echo', 'there'])").stdout == "there\n"


def test_200_kilobytes_of_output_that_deadlock(run):
    code = "import subprocess, sys\nprint('a' * 200_000)\nprint('b' * 200_000, file=sys.stderr)\n"
    code += "subprocess.run('head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2', shell=True)"
    done = run(code, timeout=30)
    assert (len(done.stdout), len(done.stderr), done.timed_out) == (400_001, 400_001, False)


@pytest.mark.parametrize("code", ["\"'''\" + '\"\"\"'", "'''it's \"quoted\" $HOME `id` \\\\'''", "r'\\n' + '\\n'"])
def test_code_that_is_broken_by_any_quote(run, code):
    assert run(code).text == repr(eval(code))


def test_an_exec_that_knows_only_sandboxes_of_its_own_process(sandbox):
    sandbox.run_code("shared = 'here'")
    program = f"from atoll import Sandbox\nprint(Sandbox.connect({sandbox.id!r}).run_code('shared').text)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "'here'\n"


def test_a_timeout_that_sets_something_else(run):
    assert run("import time\ntime.sleep(0.8)\n'slept'", timeout=20).text == "'slept'"
    assert run("time.sleep(20)", timeout=0.3).timed_out


def test_an_endless_loop_that_hangs_the_server(sandbox, run):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(run("while True: pass", timeout=2)))
    thread.start()
    assert sandbox.run_code("'answers'", context="another").text == "'answers'"
    assert sandbox.run("echo answers").stdout == "answers\n"
    thread.join(30)
    assert outcome[0].timed_out


def test_file_errors_that_are_swallowed(sandbox, run):
    assert run("open('/no/such/file')").error.name == "FileNotFoundError"
    with pytest.raises(AtollError):
        sandbox.files.read("no such file")
