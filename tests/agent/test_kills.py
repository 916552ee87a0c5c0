"""kill -9 at any moment: the run goes on at the very step, and nothing that has ended is done again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tests import thorough
from tests.agent import killing

from atoll.agent import journal

# More than there are in a run that is not killed; those beyond its end kill nothing, which is fine, too.
MOMENTS = 175


def test_the_run_itself_is_as_it_should_be(tmp_path):
    with killing.played() as server:
        died = killing.run(server, tmp_path / "side", "start", 0)
        assert died.where is None
        killing.check(server, tmp_path / "side", died.result, 0)
        assert 100 < died.moments < MOMENTS
        assert (tmp_path / "side").read_text() == "12A\n"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kill_at", thorough.some(range(1, MOMENTS + 1), 25))
def test_killed_at_a_moment(tmp_path, kill_at):
    side = tmp_path / "side"
    with killing.played() as server:
        died = killing.run(server, side, "start", kill_at)
        run = killing.newest()
        if died.where is not None and run is not None and run.state not in journal.FINAL:
            doubts = killing.doubtful(run)
            before = {step.key for step in journal.shared().steps(run.id) if step.outcome is not None}
            last = killing.run(server, side, "resume", 0, run.id)
            kept = {step.key for step in journal.shared().steps(run.id)}
            assert before <= kept, "no finished step is lost"
            killing.check(server, side, last.result, doubts)


@pytest.mark.timeout(900)
def test_killed_again_and_again(tmp_path):
    """Each process gets a few moments further than the last."""
    side, random_numbers = tmp_path / "side", random.Random(thorough.SEED)
    with killing.played() as server:
        deaths, doubts, died = [], 0, killing.run(server, side, "start", random_numbers.randint(5, 30))
        while died.where is not None and len(deaths) < 40:
            deaths.append(died.where)
            run = killing.newest()
            if run is None or run.state in journal.FINAL:
                break
            doubts += killing.doubtful(run)
            kill_at = random_numbers.randint(8, 40) if len(deaths) < thorough.amount(30, 6) else 0
            died = killing.run(server, side, "resume", kill_at, run.id)
        assert len(deaths) > 2
        if died.result is not None:
            killing.check(server, side, died.result, doubts)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(thorough.amount(30, 1)))
def test_killed_by_the_clock(tmp_path, number):
    side = tmp_path / "side"
    with killing.played() as server:
        words = [sys.executable, killing.VICTIM, "start", server.url, "0", str(side)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = killing.newest()
        time.sleep(random.Random(thorough.SEED * 100 + number).uniform(0.2, 3.0))  # the moment is the point
        process.send_signal(signal.SIGKILL)
        process.wait()
        run = killing.newest()
        if run is not None and run != before and run.state not in journal.FINAL:
            doubts = killing.doubtful(run)
            last = killing.run(server, side, "resume", 0, run.id)
            killing.check(server, side, last.result, doubts)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kill_at", thorough.turns([40, 60, 75, 90, 20]))
def test_a_process_that_slept_through_its_lease_does_nothing_more(tmp_path, kill_at, monkeypatch):
    """It wakes up when another has taken the run over: its sandbox is gone, and it writes nothing."""
    side = tmp_path / "side"
    with killing.played() as server:
        words = [sys.executable, killing.VICTIM, "start", server.url, str(kill_at), str(side)]
        sleeper = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NAP": "0.5"}
        )
        assert "asleep" in sleeper.stdout.readline()
        sleeper.send_signal(signal.SIGSTOP)
        run = killing.newest()
        kept = journal.shared()
        kept._db.write("UPDATE runs SET lease = 0 WHERE id = ?", (run.id,))
        last = killing.run(server, side, "resume", 0, run.id)
        steps = kept.steps(run.id)
        sleeper.send_signal(signal.SIGCONT)
        _, complaint = sleeper.communicate(timeout=100)
        assert sleeper.returncode == 1
        assert "LeaseLost" in complaint or "SandboxGone" in complaint, complaint
        assert kept.steps(run.id) == steps
        assert kept.run(run.id).state == "completed"
        assert last.result["response"] == killing.ANSWER
