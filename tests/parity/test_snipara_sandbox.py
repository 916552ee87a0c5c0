"""000, the README of snipara-sandbox: execution that is stateful, walled, limited and resumable, and agents in it."""

from __future__ import annotations

import json
import time

import anyio
import pytest
from tests.playedmodel import PlayedModel, calls, fails, says

from atoll import AsyncSandbox, Capability, ModelError, Resources, Sandbox
from atoll.agent import Agent, AsyncAgent, journal
from atoll.agent.forgetting import forget
from atoll.testing.needs import needs

from .walls import once

CODE, COMMANDS, LIMITS = Capability.CODE, Capability.COMMANDS, Capability.LIMITS


@needs(CODE)
def test_persistent_execution_state(wall, elsewhere):
    """Persistent execution state: results are stored, looked at, and gone on with, from wherever one is."""
    with Sandbox.create(labels={"workflow": "cleaning"}) as sandbox:
        sandbox.run_code("rows = [3, 1, 2]\nrows.sort()")
        assert [variable.name for variable in sandbox.variables.list()] == ["rows"]
        body = "found = Sandbox.find({'workflow': 'cleaning'}); answer = found.run_code('rows[-1]').text"
        assert elsewhere(body) == "3"


@needs(CODE)
def test_sandboxed_execution_in_each_environment(wall):
    """Sandboxed execution and runtime environments: the same code in each, chosen by its name."""
    with Sandbox.create(wall) as sandbox:
        assert sandbox.run_code("sum(range(10))").text == "45"
        assert sandbox.driver == wall


@once
@needs(CODE)
def test_the_environment_is_chosen_by_a_variable(wall, monkeypatch):
    """Configuration: an environment variable names the wall."""
    monkeypatch.setenv("ATOLL_DRIVER", wall)
    with Sandbox.create() as sandbox:
        assert sandbox.driver == wall


@needs(COMMANDS, Capability.ISOLATION)
def test_isolation_of_files(wall, tmp_path):
    """Sandboxed execution: a boundary around processes and files; what is outside cannot be seen."""
    (tmp_path / "secret").write_text("of the host")
    with Sandbox.create() as sandbox:
        assert sandbox.run(["cat", str(tmp_path / "secret")]).exit_code != 0
        assert sandbox.info.walls


@needs(CODE, COMMANDS, LIMITS)
def test_isolation_with_resource_limits(wall):
    """Isolation with resource limits, and its settings: processors and memory, where 512 MB are the default."""
    with Sandbox.create(resources={"cpu": 1.0, "memory": "128m"}) as sandbox:
        assert (sandbox.info.spec.resources.cpu, sandbox.info.spec.resources.memory) == (1.0, 128 << 20)
        full = sandbox.run(["python3", "-c", "data = bytearray(200 << 20); print('had it')"])
        assert (full.success, full.stdout) == (False, "")
    assert Resources().memory == 512 << 20


@needs(CODE, Capability.STOP)
def test_resume_later(wall, elsewhere):
    """Persist, and resume later: a stopped workflow goes on in another process, with its variables and functions."""
    with Sandbox.create() as sandbox:
        sandbox.run_code("import math\ndone = [1, 2]\ndef step(n): done.append(math.factorial(n)); return done")
        sandbox.stop()
        body = "later = Sandbox.connect(id); later.resume(); answer = later.run_code('step(4)').text"
        assert elsewhere(body, id=sandbox.id) == "[1, 2, 24]"


@needs(CODE)
def test_validation_through_real_code(wall, shared):
    """Validation: a result is checked by code that runs, which says what is wrong with it."""
    assert shared.run_code("total = 41").success
    check = shared.run_code("assert total == 42, f'{total} is not 42'")
    assert (check.success, check.error.name, check.error.value) == (False, "AssertionError", "41 is not 42")
    assert shared.run_code("total += 1").success
    assert shared.run_code("assert total == 42, f'{total} is not 42'").success


@needs(COMMANDS)
def test_long_running_execution(wall, shared):
    """Long-running execution: a process that outlives who started it, and is found again."""
    started = shared.start("until [ -e go ]; do sleep 0.01; done; echo finished")
    pid = started.pid
    started.detach()
    again = Sandbox.connect(shared.id)
    again.files.write("go", "")
    assert again.attach(pid).wait(30).stdout == "finished\n"


@needs(CODE)
@pytest.mark.anyio
async def test_asynchronous_programs(wall):
    """Python API: awaited from a program with an event loop."""
    async with await AsyncSandbox.create(wall) as sandbox:
        result = await sandbox.run_code("print('from inside')\n'found nothing wrong'")
        assert (result.stdout, result.text) == ("from inside\n", "'found nothing wrong'")


# What the MCP tools stand on


@needs(CODE)
def test_variables_of_a_session_are_read_set_and_cleared(wall):
    """MCP runtime tools, the calls below them: execute, read variables, store them, reset the state."""
    with Sandbox.create() as sandbox:
        assert sandbox.run_code("print('executed')").stdout == "executed\n"
        sandbox.variables.set("limit", 10)
        sandbox.variables.update({"name": "run", "parts": [1, 2]})
        assert sandbox.run_code("limit + len(parts)").text == "12"
        assert {variable.name: variable.type for variable in sandbox.variables.list()} == {
            "limit": "int", "name": "str", "parts": "list"
        }  # fmt: skip
        assert sandbox.variables.get("name") == "run"
        sandbox.variables.clear()
        assert sandbox.variables.list() == []
        assert sandbox.run_code("limit").error.name == "NameError"


@needs(CODE)
def test_sessions_are_listed_and_destroyed(wall):
    """MCP runtime tools, the calls below them: several sessions, each listed with what it is, one of them ended."""
    with Sandbox.create() as sandbox:
        for name in ("one", "two"):
            sandbox.run_code(f"x = {name!r}", context=name)
        listed = {info.name: (info.language, info.cells, info.busy) for info in sandbox.contexts.list()}
        assert {name: listed[name] for name in ("one", "two")} == dict.fromkeys(("one", "two"), ("python", 1, False))
        sandbox.contexts.delete("one")
        assert "one" not in {info.name for info in sandbox.contexts.list()}
        assert sandbox.run_code("x", context="two").text == "'two'"


@pytest.fixture
def played():
    """`played(replies)` serves a model that plays them."""
    servers = []

    def serve(replies):
        servers.append(PlayedModel(replies).start())
        return servers[-1].url

    yield serve
    for server in servers:
        server.stop()
    kept = journal.shared()
    for run in kept.runs():
        forget(kept, run.id)


def test_completions_by_a_model(played):
    """Python API: a completion with a depth and a token budget, awaited, with a response and a trajectory."""

    async def main():
        agent = AsyncAgent(model="played", base_url=played([calls(("run_code", {"code": "6 * 7"})), says("42")]),
                           sandbox={"driver": "jail"}, max_depth=4, token_budget=8000)  # fmt: skip
        return await agent.completion("Find the data quality issues and validate the findings.")

    result = anyio.run(main)
    assert result.response == "42"
    assert result.trajectory_id.startswith("tr-")


def test_an_autonomous_agent_is_started_looked_at_and_cancelled(played):
    """MCP runtime tools: run, status and cancel of an autonomous agent."""
    agent = Agent("played", base_url=played([calls(("run_code", {"code": "while True: pass"})), says("never")]))
    id = agent.begin("an endless task")
    deadline = time.monotonic() + 60
    while agent.status(id).current != "run_code" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert agent.cancel(id)
    while agent.status(id).state == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert agent.status(id).state == "cancelled"


@once
@needs(CODE)
def test_trajectories_are_logged(wall, played, cli):
    """Trajectory logging: prompts and responses, tool calls, relationships, tokens, as JSONL and at the terminal."""
    agent = Agent("played", base_url=played([calls(("run_code", {"code": "llm_query('sub')"})), says("done")]))
    played_too = agent.completion("log this")
    assert "log this" in cli("logs").out
    assert "llm_query" in cli("logs", played_too.trajectory_id).out
    lines = [
        json.loads(line)
        for line in cli("logs", "export", played_too.trajectory_id, "--format", "jsonl").out.splitlines()
    ]
    assert {line["type"] for line in lines} >= {"run", "model", "tool"}


def test_a_workflow_is_validated_and_resumed(played):
    """Resumable workflows: what failed goes on later, and counts only when its check passes."""
    url = played([calls(("run_code", {"code": "n = 41"})), [fails(401, "no"), says("wrong")], says("42")])
    agent = Agent("played", base_url=url, validate={"code": "answer == str(n + 1)"})
    with pytest.raises(ModelError):
        agent.completion("count")
    result = agent.resume(agent.latest_trajectory().id)
    assert (result.response, result.validated) == ("42", True)


def test_sniparas_context_is_detected_by_its_keys(monkeypatch):
    """Using Snipara: the key and the project from the environment make its server a tool of the agent."""
    from atoll.agent.snipara import server_from

    assert server_from({}) is None
    server = server_from({"SNIPARA_API_KEY": "snp-1", "SNIPARA_PROJECT_SLUG": "my-project"})
    assert server["url"].endswith("/my-project")
    assert server["headers"] == {"X-API-Key": "snp-1"}


@once
@needs(CODE)
def test_cli_of_prompts_and_settings(wall, played, cli, tmp_path, monkeypatch):
    """CLI: init, a prompt, logs and the effective configuration, also as JSON."""
    assert cli("init", str(tmp_path / "atoll.toml")).code == 0
    done = cli("ask", "-q", "-m", "played", "--base-url", played([says("analyzed")]), "Analyze this dataset")
    assert (done.code, done.out) == (0, "analyzed\n")
    assert "max_depth" in cli("config", "show").out
    assert json.loads(cli("config", "show", "--json").out)


def test_settings_in_toml_and_by_variables(tmp_path, monkeypatch):
    """Configuration: a TOML file, and variables, which win."""
    from atoll import config

    (tmp_path / "atoll.toml").write_text('[atoll]\nmodel = "gpt-4o-mini"\nmax_depth = 4\nmax_subcalls = 12\n')
    read = config.load(path=str(tmp_path / "atoll.toml"), environ={})
    assert (read["model"], read["max_depth"], read["max_subcalls"], read["token_budget"]) == (
        "gpt-4o-mini",
        4,
        12,
        8000,
    )
    assert config.load(path=str(tmp_path / "atoll.toml"), environ={"ATOLL_MODEL": "other"})["model"] == "other"


def test_an_mcp_server_with_its_tools():
    """MCP runtime tools: a server whose tools need no key, over stdio."""
    import sys

    from mcp.client.stdio import stdio_client

    from mcp import ClientSession, StdioServerParameters

    async def main():
        server = StdioServerParameters(command=sys.executable, args=["-m", "atoll", "mcp-serve", "--space", "parity"])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            names = {tool.name for tool in (await session.list_tools()).tools}
            await session.call_tool("execute_python", {"code": "x = 41", "session_id": "parity"})
            answer = await session.call_tool("execute_python", {"code": "x + 1", "session_id": "parity"})
            await session.call_tool("destroy_session", {"session_id": "parity"})
            return names, str(answer)

    names, answer = anyio.run(main)
    assert {"execute_python", "get_repl_context", "set_repl_context", "clear_repl_context", "list_sessions",
            "destroy_session", "agent_run", "agent_status", "agent_cancel"} <= names  # fmt: skip
    assert "42" in answer
