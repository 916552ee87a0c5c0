"""A second line from any step: conversation, files and variables as they were then."""

from __future__ import annotations

import pytest
from tests.playedmodel import calls, says

from atoll import InvalidInput, Sandbox, TrajectoryNotFound
from atoll.agent import journal

COUNTING = [
    calls(("run_code", {"code": "n = 1; open('f', 'a').write('1')"})),
    calls(("run_code", {"code": "n += 1; open('f', 'a').write('2')"})),
    calls(("run_code", {"code": "n += 1; open('f', 'a').write('3')"})),
    calls(("run_code", {"code": "FINAL(f'{n} {open(\"f\").read()}')"})),
]


@pytest.fixture
def run(played):
    server, agent = played(COUNTING)
    result = agent.run("count")
    assert result.response == "3 123"
    return server, agent, result.trajectory_id


@pytest.mark.parametrize("at", [0, 2, 4, 6])
def test_a_second_line_has_files_and_variables_of_its_step(run, at):
    """Were they those of the end, or of the beginning, the sum would be another."""
    server, agent, id = run
    before = len(server.requests)
    twin = agent.fork(id, at=at)
    assert twin.response == "3 123"
    assert twin.trajectory_id != id
    assert len(server.requests) - before == 4 - at // 2, "no model call that it begins with is made again"
    assert agent.trajectory(id).steps[-1].outcome["final"] == "3 123", "the first line is as it was"
    forked = journal.shared().run(twin.trajectory_id)
    assert (forked.origin, forked.origin_number) == (id, at)


def test_a_second_line_can_be_told_something(run):
    server, agent, id = run
    agent.fork(id, at=4, prompt="Do it another way.")
    messages = server.requests[4].body["messages"]
    assert messages[-1] == {"role": "user", "content": "Do it another way."}
    assert messages[-2]["role"] == "tool"


def test_a_line_of_a_line(run):
    _, agent, id = run
    once = agent.fork(id, at=4)
    twice = agent.fork(once.trajectory_id, at=2)
    assert twice.response == "3 123"
    assert Sandbox.list({"atoll.run": twice.trajectory_id}) == []


@pytest.mark.parametrize("at", [99, -1, 1.5, True, "2"])
def test_a_step_that_is_not_there_is_refused(run, at):
    _, agent, id = run
    with pytest.raises((InvalidInput, TypeError), match=r"at is|not supported"):
        agent.fork(id, at=at)


def test_a_run_that_is_not_there():
    from atoll.agent import Agent

    with pytest.raises(TrajectoryNotFound, match="atoll logs"):
        Agent("x").fork("tr-none", at=1)
    with pytest.raises(TrajectoryNotFound):
        Agent("x").resume("tr-none")
    with pytest.raises(TrajectoryNotFound):
        Agent("x").status("tr-none")


def test_one_process_at_a_time(played):
    import time

    from atoll import Busy

    _, agent = played([calls(("run_code", {"code": "import time; time.sleep(60)"})), says("x")])
    id = agent.begin("wait")
    deadline = time.monotonic() + 30
    while agent.status(id).current != "run_code" and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(Busy, match="works on the run"):
        agent.resume(id)
    agent.cancel(id)
    while agent.status(id).state == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
