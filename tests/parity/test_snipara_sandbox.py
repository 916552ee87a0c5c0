"""000, the README of snipara-sandbox: execution that is stateful, walled, limited and resumable.

What this document says of models, agents, trajectories and MCP belongs to issue 6.
"""

from __future__ import annotations

import pytest

from atoll import AsyncSandbox, Capability, Resources, Sandbox
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
