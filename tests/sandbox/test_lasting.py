"""State that lasts: stop and resume, checkpoints, and the death of everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from atoll import AtollError, Busy, Checkpoint, InvalidInput, Sandbox, SandboxGone
from atoll.client import lasting

STATE = (
    "import math, os\nfrom json import dumps\nx = shared = [1]\ndef f(): return x\n"
    "class C:\n    def m(self): return f()\nc = C()\nos.makedirs('deep', exist_ok=True)\nos.chdir('deep')\n"
    "os.environ['WORD'] = 'w'"
)
QUESTION = (
    "x.append(2); c.m(), shared is x, dumps([math.floor(math.pi)]), os.path.basename(os.getcwd()), os.environ['WORD']"
)
ANSWER = "([1, 2], True, '[3]', 'deep', 'w')"


def test_stop_and_resume_bring_back_variables_imports_and_directory_in_every_context(make):
    sandbox = make()
    assert sandbox.run_code(STATE).success
    sandbox.run_code("y = 'other'", context="second")
    assert sandbox.stop() == Checkpoint(9, {})
    sandbox.resume()
    again = sandbox.run_code(QUESTION)
    assert (again.text, again.stderr, again.state_lost, again.count) == (ANSWER, "", False, 1)
    assert sandbox.variables.get("y", "second") == "other"
    assert sorted(each.name for each in sandbox.contexts.list()) == ["main", "second"]


def test_another_process_brings_it_back(make):
    sandbox = make()
    sandbox.run_code(STATE)
    sandbox.stop()
    script = (
        "import sys\nfrom atoll import Sandbox\nbox = Sandbox.connect(sys.argv[1])\nbox.resume()\n"
        f"print(box.run_code({QUESTION!r}).text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, sandbox.id], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ANSWER


def test_what_cannot_be_kept_is_named_at_once_and_again_in_the_next_cell(make):
    sandbox = make()
    sandbox.run_code("fine = 1\nfile = open('f', 'w')\ngenerator = (n for n in [1])")
    report = sandbox.stop()
    assert report.saved == 1
    assert list(report.lost) == ["main/file", "main/generator"]
    assert "open file" in report.lost["main/file"]
    sandbox.resume()
    assert sandbox.variables.get("fine") == 1
    first = sandbox.run_code("fine")
    assert (first.text, first.error) == ("1", None)
    assert "could not bring back" in first.stderr
    assert "file: an open file cannot be kept" in first.stderr
    assert sandbox.run_code("fine").stderr == ""
    assert sandbox.run_code("file").error.name == "NameError"


def test_a_value_that_cannot_be_made_again_is_named_and_loses_only_itself(make):
    sandbox = make()
    sandbox.run_code(
        "class Bad:\n    def __init__(self): self.x = 1\n    def __setstate__(self, state): raise RuntimeError('no')\n"
        "bad = Bad()\ngood = 2"
    )
    assert sandbox.stop().lost == {}
    sandbox.resume()
    first = sandbox.run_code("good")
    assert first.text == "2"
    assert "bad: RuntimeError: no" in first.stderr


SLOW = (
    "import time\nclass H:\n    def __init__(self): self.x = 1\n"
    "    def __setstate__(self, state): open('waking', 'w').close(); time.sleep({})\nh = H()\ngood = 2"
)


def test_a_value_that_hangs_when_it_is_made_again_costs_the_cell_and_not_the_rest(make):
    sandbox = make()
    sandbox.run_code(SLOW.format(1000))
    sandbox.stop()
    sandbox.resume()
    first = sandbox.run_code("print('ran'); ran = 1; ran", timeout=1)
    assert (first.timed_out, first.success, first.state_lost) == (True, False, False)
    assert (first.text, first.stdout, first.error.name) == (None, "", "KeyboardInterrupt")
    assert "did not run" in first.error.value
    assert "  h: KeyboardInterrupt" in first.stderr
    last = sandbox.run_code("good, 'ran' in globals(), 'h' in globals()")
    assert (last.text, last.stderr, last.success) == ("(2, False, False)", "", True)


def test_a_cell_that_is_interrupted_while_variables_come_back_does_not_run(make, eventually):
    sandbox = make()
    sandbox.run_code(SLOW.format(1000))
    sandbox.stop()
    sandbox.resume()
    outcome = []
    cell = threading.Thread(target=lambda: outcome.append(sandbox.run_code("ran = 1", timeout=60)))
    cell.start()
    eventually(lambda: sandbox.files.exists("waking"))
    assert sandbox.contexts.interrupt("main") is True
    cell.join(30)
    assert (outcome[0].error.name, outcome[0].timed_out) == ("KeyboardInterrupt", False)
    assert sandbox.run_code("good, 'ran' in globals()").text == "(2, False)"


def test_a_value_that_takes_long_to_make_again_is_waited_for(make):
    sandbox = make()
    sandbox.run_code(SLOW.format(0.5))
    sandbox.stop()
    sandbox.resume()
    first = sandbox.run_code("good, h is None", timeout=60)
    assert (first.text, first.stderr, first.success) == ("(2, False)", "", True)


def test_an_interrupt_while_a_variable_is_asked_for_costs_no_later_cell(make, eventually):
    sandbox = make()
    sandbox.run_code(SLOW.format(1000))
    sandbox.stop()
    sandbox.resume()
    outcome = []
    question = threading.Thread(target=lambda: outcome.append(sandbox.variables.get("good")))
    question.start()
    eventually(lambda: sandbox.files.exists("waking"))
    assert sandbox.contexts.interrupt("main") is True
    question.join(30)
    assert outcome == [2]
    later = sandbox.run_code("good")
    assert (later.text, later.success) == ("2", True)
    assert "  h: KeyboardInterrupt" in later.stderr


def test_a_checkpoint_leaves_everything_running(make):
    sandbox = make()
    process = sandbox.start("cat")
    sandbox.run_code("x = 1")
    assert sandbox.checkpoint() == Checkpoint(1, {"running commands": "processes cannot be kept (1: cat)"})
    process.write("still here\n")
    process.close_stdin()
    assert process.wait(20).stdout == "still here\n"
    assert sandbox.run_code("x").text == "1"
    assert sandbox.info.status == "running"


def test_a_sandbox_without_code_stops_without_a_word(make):
    sandbox = make()
    assert sandbox.stop() == Checkpoint()
    sandbox.resume()
    assert sandbox.run_code("1 + 1").text == "2"


def test_a_running_cell_is_waited_for_and_then_it_is_busy(make):
    sandbox = make()
    sandbox.run_code("import time\nx = 1")
    cell = threading.Thread(target=lambda: sandbox.run_code("time.sleep(30)"))
    cell.start()
    while not any(each.busy for each in sandbox.contexts.list()):
        time.sleep(0.01)
    with pytest.raises(Busy, match=r"'main' after 0.2 s.*interrupt"):
        sandbox.checkpoint(wait=0.2)
    sandbox.interrupt()
    cell.join()
    assert sandbox.checkpoint(wait=20).saved == 2


def test_stop_does_not_wait_for_ever_and_the_last_checkpoint_is_what_comes_back(make):
    sandbox = make()
    sandbox.run_code("import time\nx = 1")
    sandbox.checkpoint()
    sandbox.run_code("x = 2")
    said: list[AtollError] = []

    def long_cell():
        with pytest.raises(AtollError) as caught:
            sandbox.run_code("time.sleep(30)")
        said.append(caught.value)

    cell = threading.Thread(target=long_cell)
    cell.start()
    other = Sandbox.connect(sandbox.id)
    while not any(each.busy for each in other.contexts.list()):
        time.sleep(0.01)
    report = other.stop(wait=0.1)
    cell.join()
    assert "still running" in report.lost["main"]
    assert isinstance(said[0], Busy)
    assert "was stopped before this was done. Call resume() first." in str(said[0])
    other.resume()
    assert other.run_code("x").text == "1"


def test_a_paused_one_is_kept_as_well(make):
    sandbox = make()
    sandbox.run_code("x = 1")
    sandbox.pause()
    assert sandbox.stop().saved == 1
    sandbox.resume()
    assert sandbox.run_code("x").text == "1"


def test_stopped_again_without_being_used_nothing_is_lost(make):
    sandbox = make()
    sandbox.run_code("x = 1")
    sandbox.run_code("y = 2", context="second")
    sandbox.stop()
    for _ in range(2):
        sandbox.resume()
        assert sandbox.variables.get("y", "second") == 2
        sandbox.stop()
    sandbox.resume()
    assert sandbox.variables.get("x") == 1


def test_a_context_that_was_restarted_or_has_died_does_not_come_back_as_it_was(make):
    sandbox = make()
    sandbox.run_code("x = 1")
    sandbox.run_code("y = 1", context="second")
    sandbox.run_code("z = 1", context="third")
    sandbox.stop()
    sandbox.resume()
    sandbox.contexts.restart("main")
    assert sandbox.run_code("x").error.name == "NameError"
    sandbox.run_code("import os; os._exit(1)", context="second")
    again = sandbox.run_code("y", context="second")
    assert again.error.name == "NameError"
    sandbox.contexts.delete("third")
    sandbox.stop()
    sandbox.resume()
    assert sandbox.run_code("x").error.name == "NameError"
    assert sorted(each.name for each in sandbox.contexts.list()) == ["main", "second"]


def test_a_variable_that_was_only_set_from_outside_is_kept_too(make):
    sandbox = make()
    sandbox.run_code("x = 1")
    sandbox.run_code("import os; os._exit(1)")
    sandbox.variables.set("y", 5)
    assert sandbox.stop() == Checkpoint(1, {})
    sandbox.resume()
    assert sandbox.variables.get("y") == 5


def kill_everything(sandbox):
    """As when the machine stops."""
    path = sandbox._core._record.handle.data["box"]
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                ours = path.encode() in file.read()
            if ours and int(name) != os.getpid():
                os.kill(int(name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue


def test_after_a_crash_the_last_checkpoint_comes_back(make, eventually):
    sandbox = make()
    sandbox.files.write("note", "kept")
    sandbox.run_code("x = 1")
    sandbox.checkpoint()
    sandbox.run_code("x = 2")
    kill_everything(sandbox)
    eventually(lambda: sandbox.refresh().status == "stopped")
    with pytest.raises(Busy, match="resume"):
        sandbox.run("true")
    other = Sandbox.connect(sandbox.id)
    other.resume()
    assert (other.run_code("x").text, other.files.read("note")) == ("1", "kept")


def test_without_a_checkpoint_it_is_gone(make, eventually):
    sandbox = make()
    sandbox.run_code("x = 1")
    kill_everything(sandbox)
    eventually(lambda: sandbox.refresh().status == "gone")
    with pytest.raises(SandboxGone):
        sandbox.run("true")


def test_a_checkpoint_that_is_destroyed_is_gone(make):
    sandbox = make()
    sandbox.run_code("x = 1")
    sandbox.checkpoint()
    path = sandbox._core._record.handle.data["box"]
    sandbox.destroy()
    assert not os.path.exists(path)
    with pytest.raises(SandboxGone):
        sandbox.checkpoint()


def test_a_state_that_somebody_has_tampered_with_does_not_keep_the_sandbox_from_starting(make):
    sandbox = make()
    sandbox.run_code("x = 1")
    sandbox.checkpoint()
    state = os.path.join(sandbox._core._record.handle.data["box"], "files/.state")
    names = [name for name in os.listdir(state) if name != "contexts.json"]
    for damage in ("[", "{}", "[1]", '[{"name": 1}]', '[{"name":"x"}]', "[" * 100_000):
        sandbox.stop()
        with open(os.path.join(state, "contexts.json"), "w") as file:
            file.write(damage)
        sandbox.resume()
        assert sandbox.run_code("1 + 1").text == "2"
    sandbox.run_code("x = 1")
    sandbox.stop()
    for name in set(os.listdir(state)) - {"contexts.json"}:
        with open(os.path.join(state, name), "wb") as file:
            file.write(b"junk")
    sandbox.resume()
    first = sandbox.run_code("1 + 1")
    assert first.text == "2"
    assert "could not bring back" in first.stderr
    assert names


def test_a_wait_that_is_none_is_refused(make):
    sandbox = make()
    for wait in (-1, "1", True, None, float("nan")):
        with pytest.raises(InvalidInput, match="wait"):
            sandbox.checkpoint(wait=wait)
        with pytest.raises(InvalidInput, match="wait"):
            sandbox.stop(wait=wait)
    assert sandbox.info.status == "running"


def test_old_files_do_not_pile_up(make):
    sandbox = make()
    state = os.path.join(sandbox._core._record.handle.data["box"], "files/.state")
    for number in range(3):
        sandbox.run_code(f"x = {number}")
        sandbox.checkpoint()
        assert len(os.listdir(state)) == 2
    assert os.stat(state).st_mode & 0o777 == 0o700


@pytest.mark.anyio
async def test_awaited_it_is_the_same(aio_sandbox):
    await aio_sandbox.run_code("x = 1")
    assert await aio_sandbox.checkpoint() == Checkpoint(1, {})
    assert (await aio_sandbox.stop()).saved == 1
    await aio_sandbox.resume()
    assert (await aio_sandbox.run_code("x")).text == "1"


_NEVER_FORKS = "import os\ndef stray(*_):\n    while True: os.getppid()\nos.fork = stray"


@pytest.mark.parametrize("way", ["snapshot", "stop"])
def test_contexts_that_do_not_come_to_an_end_are_lost_and_the_others_are_kept(make, monkeypatch, way):
    """However many there are, all of them together have one time."""
    monkeypatch.setattr(lasting, "_LEAST", 1.8)  # of 512M: twelve seconds
    sandbox = make()
    for number in range(2):
        sandbox.contexts.create(f"bad{number}")
        assert sandbox.run_code(_NEVER_FORKS, context=f"bad{number}").error is None
    sandbox.contexts.create("good")
    sandbox.run_code("x = 1", context="good")
    began = time.monotonic()
    lost = sandbox.stop(wait=0).lost if way == "stop" else sandbox.snapshot(wait=0).lost
    assert {each for each in lost if each.startswith("bad")} == {"bad0", "bad1"}
    assert not any(each.startswith("good") for each in lost), lost
    assert time.monotonic() - began < 60
    if way == "stop":
        sandbox.resume()
        assert sandbox.run_code("x", context="good").text == "1"
