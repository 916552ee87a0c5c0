"""Contexts as a user sees them: made, listed, restarted, deleted; their cells' errors, timeouts and deaths."""

from __future__ import annotations

import os
import threading
import time

import pytest

from atoll import Busy, InvalidInput
from atoll.errors import AtollError

STUBBORN = "import time\nwhile True:\n    try: time.sleep(1000)\n    except KeyboardInterrupt: pass"


def fresh():
    return "c" + os.urandom(6).hex()


@pytest.fixture
def context(sandbox):
    name = fresh()
    yield name
    if name in [each.name for each in sandbox.contexts.list()]:
        sandbox.contexts.delete(name)


@pytest.fixture
def run(sandbox, context):
    return lambda code, **options: sandbox.run_code(code, context=context, **options)


# Errors


def test_a_traceback_shows_the_cells_own_lines_and_no_others(run):
    run("def earlier(x):\n    # a comment\n    return 1 / x")
    error = run("a = 1\n\nb = [\n    2,\n    earlier(0),\n]").error
    lines = error.traceback.splitlines()
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.split(", ")[1] for line in lines if line.startswith("  File")] == ["line 5", "line 3"]
    assert "    earlier(0)," in lines
    assert "    return 1 / x" in lines
    assert "atoll" not in error.traceback


def test_chained_errors_are_all_told(run):
    error = run("try:\n    int('x')\nexcept ValueError as e:\n    raise KeyError('k') from e").error
    assert error.name == "KeyError"
    assert "invalid literal for int()" in error.traceback
    assert "direct cause" in error.traceback
    assert "atoll" not in error.traceback


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("raise ExceptionGroup('many', [ValueError('v'), TypeError('t')])", "ExceptionGroup"),
        ("x = = 1", "SyntaxError"),
        ("  indented = 1\n wrong", "IndentationError"),
        ("class B:\n    def __repr__(self): raise OSError('shy')\nB()", "OSError"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "Odd"),
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("import asyncio\nawait asyncio.wait_for(asyncio.sleep(100), 0.01)", "TimeoutError"),
    ],
)
def test_an_error_has_its_name_and_hurts_nothing(run, code, name):
    run("kept = 5")
    done = run(code)
    if name != "OSError" or done.error is not None:  # a value that cannot be shown may also be told in its place
        assert done.error.name == name
        assert not done.success
    assert (done.timed_out, done.state_lost) == (False, False)
    assert run("kept").text == "5"


def test_a_cell_that_raises_runs_once_in_whichever_part_it_raises(run, sandbox):
    for code in (
        "{write}\n1 / 0",
        "{write}; 1 / 0",
        "def f():\n    {write}\n    return 1 / 0\nf()",
        "{write}\nraise 5",
    ):
        path = fresh()
        assert run(code.format(write=f"open({path!r}, 'a').write('x')")).error is not None
        assert sandbox.files.read(path) == "x"


# Timeouts


def test_a_timeout_that_the_cell_obeys_keeps_the_state_and_the_output(run):
    run("kept = 1")
    done = run("print('before')\nimport time\ntime.sleep(1000)", timeout=0.3)
    assert (done.timed_out, done.success, done.state_lost, done.stdout) == (True, False, False, "before\n")
    assert done.error.name == "KeyboardInterrupt"
    after = run("kept")
    assert (after.text, after.state_lost, after.timed_out) == ("1", False, False)


def test_a_stubborn_cell_is_killed_and_the_loss_is_said_once(run):
    run("lost = 1")
    done = run("print('last words')\n" + STUBBORN, timeout=0.3)
    assert (done.timed_out, done.state_lost, done.stdout) == (True, True, "last words\n")
    after = run("'lost' in globals()")
    assert (after.text, after.state_lost, after.count) == ("False", False, 1)


@pytest.mark.parametrize(
    "code",
    [
        "10 ** 10 ** 8",
        "import ctypes\nctypes.CDLL(None).sleep(1000)",
        "import threading\nthreading.Lock().acquire(); l = threading.Lock(); l.acquire(); l.acquire()",
        "import asyncio\nawait asyncio.sleep(1000)",
        "try:\n    while True: pass\nfinally: print('cleaned up')",
        "import re\nre.match('(a*)*b', 'a' * 40)",
        "import subprocess\nsubprocess.run(['sleep', '1000'])",
    ],
    ids=["a number", "C", "a lock", "await", "finally", "a pattern", "a process"],
)
def test_a_timeout_ends_whatever_the_cell_does_and_the_next_one_is_quick(run, code):
    run("kept = 1")
    done = run(code, timeout=0.3)
    assert (done.timed_out, done.success) == (True, False)
    started = time.monotonic()
    after = run("'kept' in globals()")
    assert after.text == repr(not done.state_lost)
    assert time.monotonic() - started < 10


def test_a_timeout_ends_what_the_cell_has_started_and_spares_earlier_things(run, sandbox, eventually):
    # The kernel tells when a process began in hundredths of a second; in doubt it is the later cell's.
    run("import subprocess, time\nearlier = subprocess.Popen(['sleep', '1041.5'])\ntime.sleep(0.05)")
    done = run("later = subprocess.Popen(['setsid', 'sleep', '1042.5'])\nwhile True: pass", timeout=1.0)
    assert done.timed_out
    assert not any("1042.5" in each.command for each in sandbox.processes())
    assert run("earlier.poll()").text is None
    run("earlier.kill(); earlier.wait()")


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.05])
def test_a_short_timeout_ends_the_cell_and_keeps_the_state(run, seconds):
    run("kept = 1")
    assert run("while True: pass", timeout=seconds).timed_out
    assert run("kept").text == "1"


@pytest.mark.parametrize(
    "code",
    ["while True: print('x' * 1000)", "import subprocess\nsubprocess.run(['yes'])", "while True: display('d' * 1000)"],
    ids=["prints", "a process", "displays"],
)
def test_endless_output_is_bounded_in_size_and_in_time(run, code):
    done = run(code, timeout=0.5, max_output=1_000_000)
    assert (done.timed_out, done.truncated) == (True, True)
    assert len(done.stdout) + sum(len(result.text) for result in done.results) <= 1_100_000
    assert run("1").text == "1"


def test_a_timeout_while_the_listener_is_slow_keeps_the_state(run):
    run("kept = 1")
    slow = iter([1.0])
    done = run("while True: print('x' * 100_000)", timeout=0.3, on_stdout=lambda _: time.sleep(next(slow, 0)))
    assert (done.timed_out, done.state_lost) == (True, False)
    assert run("kept").text == "1"


# Deaths


@pytest.mark.parametrize(
    ("death", "said"),
    [
        ("import os\nos._exit(3)", "exited with 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("import os\nos.abort()", "SIGABRT"),
    ],
)
def test_a_death_is_told_and_the_cell_runs_once(run, sandbox, death, said):
    path = fresh()
    run("lost = 1")
    done = run(f"print('last words')\nopen({path!r}, 'a').write('x')\n{death}")
    assert (done.error.name, done.success, done.stdout) == ("ContextDied", False, "last words\n")
    assert said in done.error.value
    assert (done.state_lost, done.timed_out) == (True, False)
    after = run("'lost' in globals()")
    assert (after.text, after.state_lost) == ("False", False)
    assert sandbox.files.read(path) == "x"


def test_a_silent_death_runs_the_cell_once(run, sandbox):
    """Nothing was heard of it, which must not look as if it had never begun."""
    for _ in range(3):
        path = fresh()
        done = run(f"import os\nopen({path!r}, 'a').write('x')\nos._exit(1)")
        assert done.error.name == "ContextDied"
        assert sandbox.files.read(path) == "x"


def test_a_death_between_two_cells_is_told_with_the_next(run, sandbox, context, eventually):
    run("import os, threading, time\nlost = 1")
    run("threading.Timer(0.05, os._exit, [1]).start()")
    eventually(lambda: [each.pid for each in sandbox.contexts.list() if each.name == context] == [None])
    after = run("'lost' in globals()")
    assert (after.text, after.state_lost, after.error) == ("False", True, None)
    assert run("1").state_lost is False


def test_a_fork_of_a_cell_answers_for_nobody(run):
    done = run(
        "import os, time\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    os.waitpid(pid, 0)\n'end'"
    )
    assert (done.text, done.stdout) == ("'end'", "child\n")
    assert run("2").text == "2"


# Making, listing, ending


def test_a_context_has_its_own_directory_environment_and_fields(sandbox):
    name = fresh()
    sandbox.files.mkdir(name)
    made = sandbox.contexts.create(name, workdir=name, env={"WORD": "w"})
    assert (made.name, made.language, made.busy, made.cells) == (name, "python", False, 0)
    assert made.workdir.endswith(f"/{name}")
    for count in (1, 2):
        done = sandbox.run_code(
            "import os\n(os.path.basename(os.getcwd()), os.environ['WORD'], os.getpid())", context=made
        )
        assert done.text.startswith(f"('{name}', 'w', ")
        assert done.count == count
    (listed,) = [each for each in sandbox.contexts.list() if each.name == name]
    assert (listed.cells, listed.busy, listed.workdir) == (2, False, made.workdir)
    assert listed.pid is not None
    sandbox.contexts.restart(made)
    assert sandbox.run_code("os.getcwd()", context=made).error.name == "NameError"
    assert sandbox.run_code("import os\nos.environ['WORD']", context=made).text == "'w'"
    sandbox.contexts.delete(made)
    assert name not in [each.name for each in sandbox.contexts.list()]


def test_what_cannot_be_made_is_refused_and_leaves_nothing(sandbox):
    before = {each.name for each in sandbox.contexts.list()}
    name = sandbox.contexts.create().name
    for refused, error in (
        (lambda: sandbox.contexts.create(name), InvalidInput),
        (lambda: sandbox.contexts.create(fresh(), language="klingon"), AtollError),
        (lambda: sandbox.contexts.create(fresh(), workdir="nowhere"), AtollError),
        (lambda: sandbox.contexts.create(""), InvalidInput),
        (lambda: sandbox.contexts.create("x" * 1000), InvalidInput),
        (lambda: sandbox.contexts.create(5), InvalidInput),
        (lambda: sandbox.contexts.create(fresh(), env={"a=b": "c"}), InvalidInput),
        (lambda: sandbox.contexts.restart(fresh()), InvalidInput),
        (lambda: sandbox.contexts.delete(fresh()), InvalidInput),
        (lambda: sandbox.run_code("1", context=name, language="bash"), InvalidInput),
    ):
        with pytest.raises(error):
            refused()
    with pytest.raises(InvalidInput, match="python"):
        sandbox.contexts.create(fresh(), language="klingon")
    assert {each.name for each in sandbox.contexts.list()} == before | {name}
    assert sandbox.run_code("1", context=name).text == "1"
    sandbox.contexts.delete(name)


def in_thread(function):
    outcome = []

    def attempt():
        try:
            outcome.append(function())
        except AtollError as error:
            outcome.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()

    def result():
        thread.join(60)
        assert not thread.is_alive()
        return outcome[0]

    return result


@pytest.mark.parametrize("act", ["restart", "delete"])
def test_ending_a_context_ends_the_cell_that_runs_in_it(run, sandbox, context, eventually, act):
    path = fresh()
    code = f"import subprocess\nsubprocess.Popen(['sleep', '1043.5'])\nopen({path!r}, 'a').write('x')\nwhile True: pass"
    cell = in_thread(lambda: run(code, timeout=None))
    eventually(lambda: sandbox.files.exists(path))
    (listed,) = [each for each in sandbox.contexts.list() if each.name == context]
    assert listed.busy
    getattr(sandbox.contexts, act)(context)
    done = cell()
    assert (done.error.name, done.state_lost) == ("ContextDied", True)
    eventually(lambda: not any("1043.5" in each.command for each in sandbox.processes()))
    assert sandbox.files.read(path) == "x"
    after = run("'subprocess' in globals()")
    assert (after.text, after.error) == ("False", None)


def test_an_interrupt_reaches_the_cell_of_its_context_only(run, sandbox, context, eventually):
    path, other = fresh(), fresh()
    assert sandbox.contexts.interrupt(context) is False
    mine = in_thread(lambda: run(f"kept = 3\nopen({path!r}, 'w')\nwhile True: pass", timeout=60))
    wait = f"import os, time\nwhile not os.path.exists({other!r}): time.sleep(0.01)\n'unharmed'"
    theirs = in_thread(lambda: sandbox.run_code(wait, context=other))
    eventually(lambda: sandbox.files.exists(path))
    assert sandbox.contexts.interrupt(context) is True
    done = mine()
    assert (done.error.name, done.timed_out, done.state_lost) == ("KeyboardInterrupt", False, False)
    sandbox.files.write(other, "")
    assert theirs().text == "'unharmed'"
    assert run("kept").text == "3"
    sandbox.contexts.delete(other)


def test_contexts_run_at_the_same_time_and_share_nothing(sandbox):
    names = [fresh() for _ in range(3)]
    meet = """
import os, time
open(me, 'w').close()
while not all(map(os.path.exists, {names!r})): time.sleep(0.01)
me
"""
    code = meet.format(names=names)
    for _turn in range(2):
        cells = [
            in_thread(lambda name=name: sandbox.run_code(f"me = {name!r}\n{code}", context=name, timeout=30))
            for name in names
        ]
        assert [cell().text for cell in cells] == [repr(name) for name in names]
        for name in names:
            sandbox.files.remove(name)
    pids = {sandbox.run_code("os.getpid()", context=name).text for name in names}
    assert len(pids) == 3
    sandbox.run_code("import signal\nos.kill(os.getpid(), signal.SIGKILL)", context=names[0])
    assert sandbox.run_code("me", context=names[1]).text == repr(names[1])
    for name in names:
        sandbox.contexts.delete(name)


def test_there_may_be_64_contexts(make):
    sandbox = make()
    names = [f"n{number}" for number in range(64)]
    for name in names:
        assert sandbox.run_code("1", context=name).text == "1"
    with pytest.raises(Busy, match="64"):
        sandbox.run_code("1", context="one too many")
    with pytest.raises(Busy, match="64"):
        sandbox.contexts.create("one too many")
    sandbox.contexts.delete(names[0])
    assert sandbox.run_code("2", context="one too many").text == "2"
