"""An agent at work: the loop, its tools, and how it ends."""

from __future__ import annotations

import json
import threading
import time

import anyio
import pytest
from tests.playedmodel import calls, fails, refuses, says

from atoll import InvalidInput, ModelError, Sandbox
from atoll.agent import Agent, AsyncAgent, journal, tool
from atoll.models import Usage


def told(server, number=-1):
    """What the model was told last, before its answer of this number."""
    return server.requests[number].body["messages"][-1]["content"]


def test_a_question_is_answered_without_a_sandbox(played):
    _, agent = played([says("Paris", usage=(10, 2))])
    result = agent.completion("The capital of France?")
    assert result.response == "Paris"
    assert result.success
    assert result.state == "completed"
    assert result.usage == Usage(10, 2)
    assert result.cost is None, "the price of a played model is not known, which is not 0"
    assert result.sandbox is None
    assert agent.trajectory(result.trajectory_id).steps[0].snapshot is None


def test_variables_and_files_stay_from_call_to_call(played):
    server, agent = played(
        [
            calls(("run_code", {"code": "x = 41; open('f', 'w').write('one')"})),
            calls(("run_command", {"command": "cat f; echo two >> f"}), ("read_file", {"path": "f"})),
            calls(("run_code", {"code": "x + 1"})),
            says("42"),
        ]
    )
    assert agent.run("add").response == "42"
    second = server.requests[2].body["messages"][-2:]
    assert [message["content"] for message in second] == ["one", "onetwo\n"], "calls in a sandbox keep their order"
    assert told(server) == "42"
    assert Sandbox.list({"atoll.run": agent.latest_trajectory().id}) == []


def test_every_tool_of_the_sandbox(played):
    server, agent = played(
        [
            calls(("write_file", {"path": "a/b.txt", "content": "eins\nzwei\ndrei\n"})),
            calls(("edit_file", {"path": "a/b.txt", "old": "zwei", "new": "two"})),
            calls(("edit_file", {"path": "a/b.txt", "old": "e", "new": "E"})),
            calls(("read_file", {"path": "a/b.txt", "first_line": 2, "lines": 1})),
            calls(("list_files", {"path": "a"})),
            calls(("search_files", {"content": "dr.i"})),
            calls(("search_files", {"name": "*.txt"})),
            calls(("search_files", {})),
            calls(("run_command", {"command": "sleep 30", "timeout": 0.2})),
            calls(("read_file", {"path": "/nope"})),
            says("done"),
        ],
        max_iterations=20,
    )
    assert agent.run("all").success
    answers = [request.body["messages"][-1]["content"] for request in server.requests[1:]]
    assert answers[0].startswith("[15 bytes written")
    assert answers[1] == "[1 replaced in a/b.txt]"
    assert "is there 2 times" in answers[2]
    assert answers[3] == "two\n"
    assert "/workspace/a/b.txt  14 bytes" in answers[4]
    assert "b.txt:3: drei" in answers[5]
    assert answers[6].endswith("b.txt")
    assert "Give `name`" in answers[7]
    assert "ran out of time after 0.2 s" in answers[8]
    assert "/nope" in answers[9]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (("fly", {}), "There is no tool 'fly'. You have: run_code"),
        (("run_code", '{"code": '), "JSON"),
        (("run_code", {"cod": "1"}), "code"),
        (("run_code", {"code": 5}), "code"),
        (("run_code", "[1]"), "object"),
        (("read_file", {"path": "f", "lines": -1}), "lines"),
    ],
)
def test_a_call_that_cannot_be_is_explained_to_the_model_and_costs_nothing_else(played, call, complaint):
    server, agent = played([calls(call), says("sorry")])
    assert agent.completion("go").response == "sorry"
    assert complaint in told(server)


def test_functions_of_the_user_are_called_beside_each_other(played):
    barrier = threading.Barrier(2, timeout=20)

    def meet(name: str) -> str:
        """Wait for the other one."""
        barrier.wait()
        return f"met {name}"

    async def add(a: int, b: int = 1) -> int:
        return a + b

    server, agent = played(
        [calls(("meet", {"name": "x"}), ("meet", {"name": "y"}), ("add", {"a": 41})), says("ok")], tools=[meet, add]
    )
    assert agent.completion("go").success
    assert [message["content"] for message in server.requests[-1].body["messages"][-3:]] == ["met x", "met y", "42"]
    offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
    assert {"run_code", "meet", "add"} <= offered


def test_prompts_advertise_only_tools_that_exist(played):
    server, agent = played([says("ok")])
    agent.completion("go")
    body = server.requests[0].body
    offered = {each["function"]["name"] for each in body["tools"]}
    assert offered == {
        "run_code", "run_command", "read_file", "write_file", "edit_file", "list_files", "search_files",
    }  # fmt: skip
    server, agent = played([*(calls((name, {})) for name in sorted(offered)), says("ok")])
    agent.completion("each of them")
    for request in server.requests[1:]:
        assert "There is no tool" not in request.body["messages"][-1]["content"]


def test_a_tool_may_not_take_the_name_of_another(played):
    def run_code(code: str) -> str:
        return code

    with pytest.raises(InvalidInput, match="run_code"):
        played([says("")], tools=[run_code])[1].completion("go")


def test_code_in_blocks_runs_for_models_that_call_no_tools(played):
    server, agent = played([says("I look.\n```repl\nprint(6 * 7)\n```\n```repl\n1 / 0\n```"), says("FINAL(42)")])
    assert agent.completion("go").response == "42"
    assert "[block 1]\n42" in told(server)
    assert "ZeroDivisionError" in told(server)


@pytest.mark.parametrize(
    ("replies", "response"),
    [
        ([calls(("run_code", {"code": "FINAL('from code')"}))], "from code"),
        ([calls(("run_code", {"code": "v = {'a': [1]}\nFINAL_VAR('v')"}))], '{"a": [1]}'),
        ([calls(("run_code", {"code": "v = 'long ' * 3"})), says("FINAL_VAR(v)")], "long long long "),
        ([says('FINAL("quoted")')], "quoted"),
        ([says("FINAL_VAR(missing)"), says("then so")], "then so"),
        ([calls(("run_code", {"code": "FINAL('no')\n1 / 0"})), says("after an error")], "after an error"),
        ([says("cut ", finish="length"), says("off")], "cut off"),
        ([says(""), says("at last")], "at last"),
    ],
)
def test_ways_to_end(played, replies, response):
    _, agent = played(replies)
    assert agent.completion("go").response == response


def test_a_refusal_and_a_silence_are_failures(played):
    _, agent = played([refuses("I will not.")])
    result = agent.completion("go")
    assert (result.state, result.response) == ("failed", "I will not.")
    assert "refused" in result.error
    _, agent = played([says("")] * 3)
    assert "said nothing" in agent.completion("go").error


def test_an_error_of_the_model_is_raised_and_the_run_can_be_resumed(played):
    server, agent = played([calls(("run_code", {"code": "x = 1"})), [fails(401, "bad key"), says("1")]])
    with pytest.raises(ModelError, match="401"):
        agent.completion("go")
    id = agent.latest_trajectory().id
    assert agent.status(id).state == "interrupted"
    assert "401" in agent.status(id).error
    assert agent.resume(id).response == "1"
    assert len(server.requests) == 3
    assert len(agent.trajectory(id).steps) == 3
    with pytest.raises(InvalidInput, match="has ended"):
        agent.resume(id)


def test_without_a_model_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv("ATOLL_MODEL", raising=False)
    with pytest.raises(ModelError, match="ATOLL_MODEL"):
        Agent().completion("go")
    with pytest.raises(InvalidInput, match="max_iteratons"):
        Agent("x", max_iteratons=3)
    with pytest.raises(InvalidInput, match="prompt"):
        Agent("x").completion(" ")
    with pytest.raises(InvalidInput, match="max_depth"):
        Agent("x", max_depth=6)


def test_the_key_is_written_nowhere_and_enters_no_sandbox(played, monkeypatch, tmp_path):
    secret = "sk-very-secret-7391"
    monkeypatch.setenv("ATOLL_API_KEY", secret)
    server, agent = played(
        [calls(("run_command", {"command": "env; cat /proc/*/environ | tr '\\0' '\\n'"})), says("ok")]
    )
    agent.completion("go")
    assert server.requests[0].authorization == f"Bearer {secret}"
    assert secret not in json.dumps([request.body for request in server.requests])
    kept = journal.shared()
    assert secret not in repr(kept.run(agent.latest_trajectory().id))
    assert secret not in repr(kept.steps(agent.latest_trajectory().id))


def test_steps_are_told_as_they_happen(played):
    _, agent = played([calls(("run_code", {"code": "1"})), says("one")])
    running = agent.stream("go")
    kinds = [(event.kind, event.step, event.number) for event in running]
    assert kinds == [
        ("began", "model", 1), ("ended", "model", 1), ("began", "tool", 2), ("ended", "tool", 2), ("began", "model", 3),
        ("ended", "model", 3), ("done", "", 0),
    ]  # fmt: skip
    assert running.result.response == "one"


def test_a_stream_that_is_left_early_leaves_a_run_that_can_be_resumed(played):
    _, agent = played([calls(("run_code", {"code": "x = 1"})), says("one", delay=0.2)])
    with agent.stream("go") as running:
        next(iter(running))
    deadline = time.monotonic() + 20
    while agent.status(running.trajectory_id).state in ("running", "waiting") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert agent.status(running.trajectory_id).state == "interrupted"
    assert agent.resume(running.trajectory_id).response == "one"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_awaited(played, backend):
    server, _ = played([calls(("run_code", {"code": "llm_query_batched(['a', 'b'])"})), says("one")])
    script = server.url

    async def main():
        agent = AsyncAgent("played", base_url=script, token_budget=50_000)
        seen = []
        async with agent.stream("go", kind="completion") as steps:
            async for event in steps:
                seen.append(event.kind)  # noqa: PERF401 - it is awaited
        return steps.result, seen

    result, seen = anyio.run(main, backend=backend)
    assert result.response == "one"
    assert seen[-1] == "done"


def test_a_run_in_the_background_can_be_asked_for_and_cancelled(played):
    _, agent = played([calls(("run_code", {"code": "import time\nwhile True: time.sleep(0.1)"})), says("never")])
    id = agent.begin("loop")
    deadline = time.monotonic() + 30
    while agent.status(id).current != "run_code" and time.monotonic() < deadline:
        time.sleep(0.02)
    status = agent.status(id)
    assert (status.state, status.current, status.iterations) == ("running", "run_code", 1)
    assert agent.cancel(id)
    while agent.status(id).state == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert agent.status(id).state == "cancelled", "and never completed"
    assert not agent.cancel(id)
    assert Sandbox.list({"atoll.run": id}) == []


def test_a_sandbox_can_be_lent(played):
    server, _ = played([calls(("run_code", {"code": "x += 1\nx"})), says("ok")])
    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 1")
        agent = Agent("played", base_url=server.url, sandbox=sandbox, token_budget=50_000)
        result = agent.completion("go")
        assert result.sandbox == sandbox.id
        assert sandbox.run_code("x").text == "2", "it lives on, with what was done"


def test_nothing_reaches_a_source_but_by_apply(played, tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    _, agent = played(
        [calls(("write_file", {"path": "a.txt", "content": "new\n"})), says("ok")],
        sandbox={"source": tmp_path, "permissions": "development"},
    )
    result = agent.run("go")
    assert (tmp_path / "a.txt").read_text() == "old\n"
    sandbox = Sandbox.connect(result.sandbox)
    try:
        assert sandbox.apply().applied == ("a.txt",)
    finally:
        sandbox.destroy()
    assert (tmp_path / "a.txt").read_text() == "new\n"


def test_mcp_servers_of_the_user_are_tools(played, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "app = MCPServer('t')\n"
        "@app.tool()\ndef double(n: int) -> int:\n    return 2 * n\n"
        "app.run('stdio')\n"
    )
    import sys

    server, agent = played(
        [calls(("calc__double", {"n": 21})), says("42")],
        mcp_servers={"calc": {"command": sys.executable, "args": [str(program)]}},
    )
    assert agent.completion("go").success
    assert "42" in told(server)


def test_a_marked_tool_has_the_name_it_was_given(played):
    @tool(name="look_up", idempotent=True)
    def find(key: str) -> str:
        return key.upper()

    server, agent = played([calls(("look_up", {"key": "a"})), says("ok")], tools=[find])
    agent.completion("go")
    assert told(server) == "A"
