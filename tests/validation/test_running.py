"""Jobs in processes of their own: they outlive whoever began them, end when told, and can be taken up when killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.thorough import SEED, amount

from atoll import Busy, InvalidInput, Sandbox, TimedOut, procid, validation
from atoll.validation import Job, begin, cancel, forget, jobs, load, recover, run, shelf, status, verify, wait
from atoll.validation.executing import LABEL


def jail(command, **wishes):
    return Job(command=command, driver="jail", **wishes)


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.02)
    return outcome


def sandboxes(id):
    return [info.id for info in Sandbox.list({LABEL: id}) if info.status == "running"]


def running(command="sleep 1000"):
    """A job that was begun and whose command runs by now."""
    id = begin(jail(f"echo $$ > /tmp/began; {command}"))
    box = Sandbox.connect(eventually(lambda: sandboxes(id))[0])
    eventually(lambda: box.files.exists("/tmp/began"))
    return id


def kill(id):
    process = shelf.claim_of(id).process
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not procid.is_alive(process))


def test_a_job_in_a_process_of_its_own():
    id = begin(jail("echo hi", name="mine"))
    state = wait(id, 60)
    assert (state.id, state.name, state.state, state.pid) == (id, "mine", "passed", None)
    assert state.result == load(id)
    assert state.result.stdout == "hi\n"
    assert [state.id for state in jobs()] == [id]


def test_it_outlives_whoever_began_it():
    code = "from atoll.validation import Job, begin; print(begin(Job(command='sleep 0.5; echo hi', driver='jail')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert wait(done.stdout.strip(), 60).result.stdout == "hi\n"


def test_a_program_that_lies_about_is_not_imported_by_it(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text(f"open('{tmp_path}/ran', 'w')")
    monkeypatch.chdir(tmp_path)
    assert wait(begin(jail("echo hi")), 60).state == "passed"
    assert not (tmp_path / "ran").exists()


def test_cancel_really_ends_it_and_says_so():
    id = running()
    pid = status(id).pid
    assert status(id).state == "running"
    state = cancel(id)
    assert (state.state, state.result.reason) == ("cancelled", "It was cancelled.")
    assert sandboxes(id) == []
    assert procid._started(pid) is None
    assert verify(id).ok, "also that is sealed"
    assert cancel(id).state == "cancelled"


def test_what_has_passed_stays_passed_when_it_is_cancelled():
    result = run(jail("true"))
    assert cancel(result.id).state == "passed"
    assert load(result.id) == result


def test_a_job_that_runs_in_this_process_can_be_cancelled_from_another_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(jail("sleep 1000"))))
    thread.start()
    id = eventually(lambda: next((state.id for state in jobs() if state.state == "running"), None))
    assert cancel(id).state == "cancelled"
    thread.join(60)
    assert results[0].verdict == "cancelled"
    assert sandboxes(id) == []


def test_a_job_whose_process_is_killed_is_interrupted_and_can_be_run_again():
    id = running("test -e /tmp/none || sleep 1000")
    kill(id)
    assert status(id).state == "interrupted"
    assert shelf.result_of(id) is None
    assert [state.id for state in recover()] == [id]
    assert sandboxes(id) == [], "what it left is gone"
    begin(id)
    assert status(id).state == "running"
    with pytest.raises(Busy):
        begin(id)
    with pytest.raises(Busy):
        run(id)
    with pytest.raises(Busy):
        forget(id)
    assert recover() == []
    assert cancel(id).result.attempt == 2


def test_an_interrupted_job_can_be_run_here_under_its_id():
    id = begin(jail("sleep 0.2; echo hi"))
    kill(id)
    if status(id).state == "interrupted":  # else it was quicker than we are
        assert run(id).stdout == "hi\n"
        assert load(id).attempt == 2
    with pytest.raises(InvalidInput, match="has ended"):
        run(id)
    with pytest.raises(InvalidInput, match="has ended"):
        begin(id)


def test_an_interrupted_job_can_be_cancelled():
    id = running()
    kill(id)
    assert cancel(id).state == "cancelled"
    assert sandboxes(id) == []


def test_a_job_that_nobody_came_to_run_is_starting_and_then_interrupted(monkeypatch):
    from atoll.validation import running as module
    from atoll.validation.jobs import check_job

    id = shelf.add(check_job(jail("true")))
    assert status(id).state == "starting"
    monkeypatch.setattr(module, "_STARTING", 0.0)
    assert status(id).state == "interrupted"
    assert run(id).passed


def test_waiting_has_an_end():
    id = running()
    with pytest.raises(TimedOut, match="still running"):
        wait(id, 0.05)


def test_a_job_that_is_broken_off_is_cancelled_and_leaves_nothing(monkeypatch):
    from atoll.validation import executing

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(executing, "_run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(jail("true"))
    (state,) = jobs()
    assert (state.state, state.result.reason) == ("cancelled", "It was broken off: KeyboardInterrupt.")
    assert sandboxes(state.id) == []


def test_what_is_forgotten_is_gone():
    id = run(jail("true")).id
    forget(id)
    for call in (status, load, cancel, forget, wait, run, begin):
        with pytest.raises(InvalidInput, match="There is no job"):
            call(id)


@pytest.mark.parametrize("id", ["", "vj-", "../../etc", "vj-0123456789AB", "vj-0123456789ab/..", 5, None])
def test_what_is_no_id_is_refused(id):
    for call in (status, load, cancel, forget):
        with pytest.raises(InvalidInput):
            call(id)


def test_many_at_once_each_have_their_own_result():
    ids = [begin(jail(f"echo {number}")) for number in range(4)]
    assert [wait(id, 60).result.stdout for id in ids] == ["0\n", "1\n", "2\n", "3\n"]
    assert {state.id for state in validation.jobs()} == set(ids)


@pytest.mark.parametrize("round", range(amount(20, 3)))
def test_whenever_its_process_is_killed_a_job_comes_to_its_end_after_all(round):
    chance = random.Random(f"{SEED} {round}")
    id = begin(jail("echo hi", files={"a": "1"}))
    time.sleep(chance.uniform(0.0, 0.3))  # a moment of the kill, and nothing that anybody waits for
    process = shelf.claim_of(id).process
    if procid.is_alive(process):
        kill(id)
    if (found := status(id)).result is None:
        assert found.state == "interrupted"
        assert [state.id for state in recover()] == [id]
        begin(id)
    state = wait(id, 60)
    assert (state.state, state.result.stdout) == ("passed", "hi\n")
    assert verify(id).ok
    assert sandboxes(id) == []
