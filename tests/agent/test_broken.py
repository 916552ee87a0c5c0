"""What a breaker found, so that nobody builds it in again."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time

import pytest
from tests.playedmodel import PlayedModel, calls, fails, says

from atoll import AgentError, InvalidInput, ModelError, Sandbox, SandboxNotFound
from atoll.agent import Agent, journal, prompts

ATOLL = os.path.join(os.path.dirname(sys.executable), "atoll")


def told(server, number=-1):
    return server.requests[number].body["messages"][-1]["content"]


def test_a_guest_that_breaks_the_protocol_ends_its_sandbox_and_no_step_is_done_twice(played):
    """An answer that is nested too deeply to be read used to end the loop, and the cell was then run again unseen."""
    deep = (
        "open('f', 'a').write('x')\ndeep = []\nfor _ in range(5000): deep = [deep]\n"
        "import sys\nsys.setrecursionlimit(99999)\nFINAL(deep)"
    )
    server, agent = played(
        [calls(("run_code", {"code": deep})), calls(("run_command", {"command": "cat f; true"})), says("ok")]
    )
    assert agent.completion("go").response == "ok"
    assert told(server).count("x") <= 1


def test_a_sandbox_that_dies_under_a_cell_is_told_to_the_model_and_had_again(played):
    server, agent = played(
        [
            calls(("run_code", {"code": "x = 1"})),
            calls(("run_code", {"code": "import time\ntime.sleep(60)"})),
            calls(("run_code", {"code": "x"})),
            says("ok"),
        ]
    )
    id = agent.begin("go")
    deadline = time.monotonic() + 40
    while agent.status(id).steps < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    (info,) = Sandbox.list({"atoll.run": id})
    Sandbox.connect(info.id).destroy()
    while agent.status(id).state == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert agent.status(id).state == "completed", agent.status(id)
    assert "The sandbox ended while this ran" in told(server, 2)
    assert told(server, 3).endswith("1"), "it is back as it was after the step before"


def test_a_step_that_could_not_be_kept_is_not_taken_for_an_older_one(played):
    """A file that stays open forbids a snapshot: a check must not judge an older one, nor a fork begin there."""
    server, agent = played(
        [
            calls(("run_code", {"code": "open('a', 'w').write('GOOD')"})),
            calls(("run_code", {"code": "held = open('b', 'w'); open('a', 'w').write('BROKEN')"})),
            says("first"),
            calls(("run_code", {"code": "held.close()"})),
            says("second"),
        ]
    )
    result = agent.completion("go", validate={"code": "open('a').read() == 'BROKEN'"})
    assert result.response == "second"
    assert "open" in told(server, 3), "the model is told why its answer could not be checked"
    with pytest.raises(InvalidInput, match="could not be kept after step 4"):
        agent.fork(result.trajectory_id, at=4)


def test_a_cancelled_run_is_never_completed(played):
    kept = journal.shared()
    _, agent = played(lambda _: kept.request_cancel(kept.runs(limit=1)[0].id) and says("too late"))
    assert agent.completion("go").state == "cancelled"
    id = agent.prepare("again")
    hold = kept.claim(id)
    kept.request_cancel(id)
    kept.release(hold, {})  # its process ends before it has looked
    with pytest.raises(InvalidInput, match="cancelled"):
        agent.resume(id)
    assert agent.status(id).state == "cancelled"


def test_a_run_that_nobody_works_on_is_cancelled_with_its_sandbox(played):
    _, agent = played([calls(("run_code", {"code": "1"})), fails(401, "no")])
    with pytest.raises(ModelError):
        agent.completion("go")
    id = agent.latest_trajectory().id
    assert len(Sandbox.list({"atoll.run": id})) == 1
    assert agent.cancel(id)
    assert Sandbox.list({"atoll.run": id}) == []


def test_what_a_model_says_does_not_command_a_terminal():
    evil = "\x1b]52;c;ZXZpbA==\x07"
    with PlayedModel([calls((f"fly{evil}", {})), says(f"done{evil}")]) as server:
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [ATOLL, "ask", "-m", "played", "--base-url", server.url, "go"], stdin=child, stdout=child, stderr=child
        )
        os.close(child)
        said = b""
        while True:
            try:
                data = os.read(parent, 1 << 16)
            except OSError:
                break
            if not data:
                break
            said += data
        process.wait()
        os.close(parent)
    assert b"done" in said
    assert b"\x1b]52" not in said


@pytest.mark.parametrize(
    ("call", "heard"),
    [
        (("run_command", '{"command": "echo hi", "timeout": 1' + "0" * 400 + "}"), "hi"),
        (("read_file", '{"path": "/etc/passwd", "first_line": 1.0, "lines": 1.0}'), "root"),
    ],
)
def test_numbers_of_any_kind_and_size(played, call, heard):
    server, agent = played([calls(call), says("ok")])
    assert agent.completion("go").success
    assert heard in told(server)


def test_half_a_surrogate_pair_can_be_checked_and_told(played):
    _, agent = played([calls(("run_code", {"code": "FINAL('a' + chr(0xd800))"}))])
    result = agent.completion("go", validate="grep -q a")
    assert result.response.encode() == b"a?"


def test_text_of_any_shape_is_read_in_no_time():
    began = time.monotonic()
    assert prompts.blocks_of("```repl\n" * 100_000) == []
    assert prompts.final_of("FINAL(" + "(" * 100_000) is None
    assert time.monotonic() - began < 5
    assert prompts.blocks_of("a\n```repl\nx = 1\n```\nb\n```repl \ny\n```") == ["x = 1\n", "y\n"]


def test_file_tools_and_checks_have_their_time(played):
    _, agent = played([says("a")], step_timeout=1, max_iterations=1)
    began = time.monotonic()
    result = agent.completion("go", validate=lambda _: threading.Event().wait(30))
    assert (result.limit, result.validated) == ("max_iterations", False)
    assert time.monotonic() - began < 25


def test_one_refused_query_does_not_waste_the_others(played):
    def script(request):
        if request.get("tools"):
            answered = any(message["role"] == "tool" for message in request["messages"])
            return (
                says("end", usage=(10, 1))
                if answered
                else calls(("run_code", {"code": "llm_query_batched(['a', 'bad', 'c'])"}), usage=(10, 1))
            )
        return fails(400, "no") if request["messages"][0]["content"] == "bad" else says("s", usage=(100, 10))

    _, agent = played(script)
    assert agent.completion("go").usage.total == 22 + 220


def test_tool_calls_of_helpers_count(played):
    def script(request):
        done = sum(message["role"] == "tool" for message in request["messages"])
        if request["messages"][1]["content"] == "helper":
            return calls(("run_code", {"code": str(done)})) if done < 5 else says("helped")
        return says("end") if done else calls(("run_code", {"code": "rlm_query('helper')"}))

    _, agent = played(script, max_tool_calls=3)
    result = agent.completion("go")
    steps = agent.trajectory(result.trajectory_id)
    made = sum(step.kind == "tool" for each in (steps, *steps.parts) for step in each.steps)
    assert made == 3


def test_a_fork_does_not_do_again_what_cannot_be_undone(played):
    paid, go_on = [], threading.Event()

    def pay(amount: int) -> str:
        paid.append(amount)
        go_on.wait(20)
        return "paid"

    _, agent = played([calls(("pay", {"amount": 5}), ("run_code", {"code": "1"})), says("ok")], tools=[pay])
    id = agent.begin("go")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ended = [step.number for step in agent.trajectory(id).steps if step.name == "run_code" and step.outcome]
        if ended and paid:
            break
        time.sleep(0.02)
    twin = agent.fork(id, at=ended[0])
    go_on.set()
    assert paid == [5]
    assert any((step.outcome or {}).get("unknown") for step in agent.trajectory(twin.trajectory_id).steps)
    while agent.status(id).state == "running" and time.monotonic() < deadline:
        time.sleep(0.02)


def test_a_tool_that_is_gone_may_have_had_its_effect(played):
    def pay(amount: int) -> str:
        raise KeyboardInterrupt

    server, agent = played([calls(("pay", {"amount": 5})), says("ok")], tools=[pay])
    id = agent.prepare("go")
    kept = journal.shared()
    hold = kept.claim(id)
    other = Agent("played", base_url=server.url, token_budget=50_000)
    tools = [{"type": "function", "function": {"name": "pay", "description": "", "parameters": {}}}]
    kept.set_settings(hold, {**kept.run(id).settings, "tools": tools})
    reply = {
        "text": "",
        "tool_calls": [{"id": "c", "name": "pay", "arguments": '{"amount": 5}'}],
        "finish": "tool_calls",
    }
    spent = {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0, "cost": None}
    kept.begin(hold, "m0", "model", "played", {"added": []})
    kept.end(hold, "m0", {"reply": {**reply, "usage": None, "model": "p", "cost": None}, "spent": spent})
    kept.begin(hold, "m0.t0", "tool", "pay", {"id": "c", "arguments": {"amount": 5}})
    kept.release(hold, {})
    assert other.resume(id).response == "ok"
    assert "not known whether" in told(server)
    assert "pay" not in str(server.requests[-1].body.get("tools")), "it is not offered by who does not have it"


def test_a_key_goes_only_to_the_server_that_it_was_given_for(played):
    server, agent = played([[fails(401, "no"), says("x")]])
    with pytest.raises(ModelError):
        agent.completion("go")
    other = Agent("played", base_url="http://127.0.0.1:9/v1", api_key="sk-other")
    with pytest.raises(InvalidInput, match="api_key was given for"):
        other.resume(agent.latest_trajectory().id)
    assert all("sk-other" not in str(request.authorization) for request in server.requests)


@pytest.mark.parametrize(
    ("sandbox", "error", "complaint"),
    [
        ({"drvier": "jail"}, InvalidInput, "driver"),
        ({"driver": "nope"}, Exception, "nope"),
        ({"source": "/nope"}, InvalidInput, "not a directory"),
        ({"network": "maybe"}, Exception, "network"),
        ({"resources": {"memory": "lots"}}, InvalidInput, "lots"),
        ("sb-nope", SandboxNotFound, "sb-nope"),
    ],
)
def test_a_sandbox_that_cannot_be_is_refused_before_a_model_is_asked(sandbox, error, complaint):
    with pytest.raises(error, match=complaint):
        Agent("played", base_url="http://127.0.0.1:9/v1", sandbox=sandbox)


def test_a_check_that_cannot_be_run_costs_one_answer(played):
    server, agent = played([says("a")] * 9)
    with pytest.raises(AgentError, match="127"):
        agent.completion("go", validate="grpe -q a")
    assert len(server.requests) == 1


def test_a_run_that_ended_at_a_limit_goes_on_with_a_larger_one(played):
    server, agent = played(
        [calls(("run_code", {"code": "n = 1"})), calls(("run_code", {"code": "n + 1"})), says("2")], max_iterations=1
    )
    result = agent.completion("go")
    assert result.limit == "max_iterations"
    with pytest.raises(InvalidInput, match="larger limits"):
        agent.resume(result.trajectory_id)
    with pytest.raises(InvalidInput, match="cannot be changed"):
        agent.resume(result.trajectory_id, source=".")
    assert agent.resume(result.trajectory_id, max_iterations=5).response == "2"
    assert len(server.requests) == 3
    assert told(server).endswith("\n2"), "its variables are there again"


def test_what_never_began_leaves_nothing(monkeypatch):
    before = len(journal.shared().runs())
    with pytest.raises(InvalidInput, match="max_cost"):
        Agent("played", base_url="http://127.0.0.1:9/v1", max_cost=1.0).completion("go")
    assert len(journal.shared().runs()) == before
