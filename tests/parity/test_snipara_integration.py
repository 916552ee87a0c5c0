"""001, the page on integrating snipara-sandbox: when to use which environment, its commands and its safety limits."""

from __future__ import annotations

import json

import pytest
from tests.playedmodel import PlayedModel, calls, says

from atoll import Capability, InvalidInput, Sandbox, config
from atoll.agent import Agent, journal
from atoll.agent.forgetting import forget
from atoll.testing.needs import needs

from .walls import once

CODE, COMMANDS = Capability.CODE, Capability.COMMANDS


@needs(COMMANDS)
def test_multi_file_changes(wall, shared, here):
    """When to use it: a task that changes several files and runs what it has made."""
    shared.files.write("app/rules.py", "def valid(name): return name.isidentifier()\n")
    shared.files.write("app/main.py", "import sys, rules\nprint([rules.valid(word) for word in sys.argv[1:]])\n")
    assert shared.run("python3 app/main.py good 'not good'").stdout == "[True, False]\n"
    assert {match.path.rpartition("/")[2] for match in shared.files.search(content="valid")} == {
        "rules.py", "main.py"
    }  # fmt: skip


@needs(CODE)
def test_iterative_refinement(wall, shared):
    """When to use it: code is tried, fails, is mended, and goes on with the state that it had."""
    shared.run_code("rows = ['1', '2', 'x']")
    assert shared.run_code("total = sum(int(row) for row in rows)").error.name == "ValueError"
    assert shared.run_code("total = sum(int(row) for row in rows if row.isdigit()); total").text == "3"


@needs(CODE)
def test_no_key_is_needed(wall, monkeypatch):
    """Setup: the runtime itself asks for no key of anybody."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SNIPARA_API_KEY", "E2B_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Sandbox.create() as sandbox:
        assert sandbox.run_code("1 + 1").text == "2"


@needs(CODE)
def test_execution_environments(wall, cli):
    """Execution environments: each by its name, from Python and from the command line."""
    assert cli("run", "-p", wall, "--code", "6 * 7") == (0, "42\n", "")


def test_cli_doctor(wall, cli):
    """CLI commands: `doctor` tells of each layer whether it is there."""
    done = cli("doctor", "-p", wall)
    assert done.code == 0
    assert done.out


@needs(CODE)
def test_safety_limits_of_time(wall, shared):
    """Safety limits: a time for each cell, with a default, and no time that has no end by mistake."""
    assert shared.info.spec.timeout == 60.0
    assert shared.run_code("while True: pass", timeout=0.5).timed_out
    assert shared.run_code("'still there'", timeout=600).text == "'still there'"
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidInput, match="give seconds above 0"):
            shared.run_code("1", timeout=wrong)


@once
@needs(COMMANDS, Capability.LIMITS)
def test_safety_limits_of_memory(wall):
    """Safety limits: 512 MB unless another limit is given."""
    with Sandbox.create() as sandbox:
        assert sandbox.info.spec.resources.memory == 512 << 20
        assert sandbox.run(["python3", "-c", "x = bytearray(600 << 20); print('had it')"]).stdout == ""
    with Sandbox.create(resources={"memory": "1G"}) as sandbox:
        assert sandbox.run(["python3", "-c", "x = bytearray(600 << 20); print('had it')"]).stdout == "had it\n"


def test_safety_limits_of_agents():
    """Safety limits: their defaults, and the most that each may be."""
    settings = config.load(environ={})
    limits = {"max_depth": (4, 5), "max_iterations": (10, 50), "max_cost": (2.0, 10.0), "step_timeout": (30, 600)}
    for name, (usual, most) in limits.items():
        assert settings[name] == usual
        assert config.check(name, most) == most
        with pytest.raises(InvalidInput, match=name):
            Agent("x", **{name: most + 1})


@once
def test_setup_of_mcp_clients(wall, cli, tmp_path, monkeypatch):
    """Setup: an entry in the configuration of Claude Code and others, shown before it is written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    shown = cli("mcp-install", "--client", "cursor", "--dry-run")
    assert shown.code == 0
    assert "mcp-serve" in shown.out
    assert cli("mcp-install", "--client", "cursor").code == 0
    written = json.loads((tmp_path / ".cursor" / "mcp.json").read_text())
    assert "mcp-serve" in written["mcpServers"]["atoll"]["args"]


@once
@needs(CODE)
def test_cli_agent(wall, cli):
    """CLI commands: an agent, and what it did."""
    with PlayedModel([calls(("run_code", {"code": "6 * 7"})), says("a report")]) as server:
        done = cli("agent", "-q", "-m", "played", "--base-url", server.url, "Analyze all CSV files")
    assert (done.code, done.out) == (0, "a report\n")
    assert "Analyze all CSV files" in cli("logs").out
    kept = journal.shared()
    for run in kept.runs():
        forget(kept, run.id)
