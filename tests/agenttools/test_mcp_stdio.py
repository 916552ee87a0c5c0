"""Tools of MCP servers that are started here: honest ones, and those that crash, hang, lie and flood."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys

import anyio
import pytest

from atoll.agent.mcptools import attached
from atoll.agent.toolspec import MOST_IMAGES, MOST_TEXT, Outcome, check_name
from atoll.errors import AgentError, InvalidInput

from .servers import PNG

LONG = 120  # seconds that a good answer may take on a machine that is busy


def is_gone(pid):
    """Whether a process has ended; one that nobody has waited for has."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def using(servers, task, backend="asyncio"):
    """Run `task` with the tools of the servers, by name."""

    async def main():
        async with attached(servers) as tools:
            return await task({tool.name: tool for tool in tools})

    return anyio.run(main, backend=backend)


def listed(*names, **about):
    return json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}, **about} for name in names]})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_honest_server_does_what_it_is_asked(entry, backend, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    monkeypatch.setenv("SHOP_TOKEN_HERE", "tok-123456")
    servers = {"shop": entry("stdio", env={"SHOP_TOKEN": "${SHOP_TOKEN_HERE}", "SIZE": "large-one"}, timeout=LONG)}

    async def task(tools):
        assert {name.partition("__")[0] for name in tools} == {"shop"}
        assert tools["shop__add"].description == "Add two numbers."
        assert tools["shop__add"].parameters["required"] == ["a", "b"]
        again = {name for name, tool in tools.items() if tool.idempotent}
        assert again == {"shop__add", "shop__put"}, "what is read-only or idempotent may run again"
        assert await tools["shop__add"].call({"a": 1, "b": 2}) == Outcome("3")
        assert await tools["shop__picture"].call({}) == Outcome("here", images=(("image/png", PNG),))
        failed = await tools["shop__fail"].call({"why": "no apples"})
        assert failed.failed
        assert "fail" in failed.text
        assert (await tools["shop__add"].call({"a": "x"})).failed
        assert len((await tools["shop__large"].call({"size": 2 * MOST_TEXT})).text) < MOST_TEXT + 100
        seen = json.loads((await tools["shop__environment"].call({})).text)
        assert seen["SIZE"] == "large-one"
        assert seen["SHOP_TOKEN"] == "***", "a secret that was given to a server does not come back"
        assert "OPENAI_API_KEY" not in seen
        assert {"PATH", "HOME"} <= seen.keys(), "the control: something of the environment is passed on"
        met = []
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(collect, met, tools["shop__meet"], {"count": 3})
        assert met == [Outcome("3")] * 3, "they ran side by side"
        return int((await tools["shop__pid"].call({})).text)

    assert is_gone(using(servers, task, backend))


async def collect(into, tool, arguments):
    into.append(await tool.call(arguments))


def test_a_server_that_crashes_or_hangs_is_told_and_does_not_harm_another(entry):
    async def task(tools):
        hung = await tools["slow__hang"].call({})
        assert hung.failed
        assert "did not answer within 2 s. Whether the tool ran is unknown." in hung.text
        refused = await tools["bad__refuse"].call({})
        assert refused == Outcome("The MCP server 'bad' failed: MCPError: not today.", failed=True)
        crashed = await tools["bad__crash"].call({})
        assert crashed.failed
        assert "the disk is on fire" in crashed.text
        assert crashed.text.endswith("Whether the tool ran is unknown.")
        assert (await tools["bad__wait"].call({})).failed
        assert await tools["good__wait"].call({}) == Outcome("fine")

    refusal = {"error": {"code": -32602, "message": "not today"}}
    wait = {"result": {"content": [{"type": "text", "text": "fine"}]}}
    fine = json.dumps({"wait": wait, "crash": "crash", "refuse": refusal})
    using(
        {
            "slow": entry("raw", listed("hang"), '{"hang": "hang"}', timeout=2),
            "bad": entry("raw", listed("wait", "crash", "refuse"), fine, timeout=LONG),
            "good": entry("raw", listed("wait"), fine, timeout=LONG),
        },
        task,
    )


def test_calls_that_wait_when_a_server_dies_are_told(entry):
    async def task(tools):
        met = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, met, tools["bad__hang"], {})
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(collect, met, tools["bad__crash"], {})
        assert [outcome.failed for outcome in met] == [True, True]

    using({"bad": entry("raw", listed("hang", "crash"), '{"hang": "hang", "crash": "crash"}', timeout=LONG)}, task)


@pytest.mark.parametrize("bad", ["noise", "strangers"])
def test_what_a_server_says_besides_is_borne(entry, bad):
    async def task(tools):
        outcome = await tools[f"bad__{bad}"].call({})
        assert outcome == Outcome({"noise": "quiet again", "strangers": "mine"}[bad])

    using({"bad": entry("raw", listed(bad), json.dumps({bad: bad}), timeout=LONG)}, task)


def test_a_line_without_end_is_cut_off_with_its_server(entry):
    async def task(tools):
        (flood,) = tools.values()
        outcome = await flood.call({})
        assert outcome.failed
        assert "a line of more than 4 MiB" in outcome.text
        assert (await flood.call({})).failed

    using({"bad": entry("raw", listed("endless line"), '{"endless line": "endless line"}', timeout=LONG)}, task)


def text(said):
    return {"type": "text", "text": said}


def binary(kind, mime):
    return {"type": kind, "data": PNG, "mimeType": mime}


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"content": []}, Outcome("")),
        ({"content": [text("a"), text("b")]}, Outcome("a\nb")),
        ({"content": [text("no")], "isError": True}, Outcome("no", failed=True)),
        ({"content": [], "structuredContent": {"a": 1}}, Outcome('{"a": 1}')),
        ({"content": [text('{"a":1}')], "structuredContent": {"a": 1}}, Outcome('{"a":1}')),
        ({"content": [text("5")], "structuredContent": {"result": 5}}, Outcome("5")),
        ({"content": [text("1"), text("2")], "structuredContent": {"result": [1, 2]}}, Outcome("1\n2")),
        ({"content": [text("two")], "structuredContent": {"n": 2}}, Outcome('two\n{"n": 2}')),
        ({"content": [binary("image", "image/png")]}, Outcome("", images=(("image/png", PNG),))),
        ({"content": [binary("audio", "audio/wav")]}, Outcome("[audio, audio/wav, 9 bytes]")),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]},
            Outcome("inside"),
        ),
        (
            {"content": [{"type": "resource_link", "name": "a", "uri": "file:///a"}]},
            Outcome("[a link to the resource a: file:///a]"),
        ),
    ],
)  # fmt: skip
def test_every_kind_of_content_becomes_an_outcome(result, outcome):
    from mcp_types import CallToolResult

    from atoll.agent.mcpanswers import outcome_of

    assert outcome_of(CallToolResult.model_validate(result)) == outcome


def test_images_without_end_are_left_out_and_told():
    from mcp_types import CallToolResult, ImageContent

    from atoll.agent.mcpanswers import outcome_of

    half = ImageContent(type="image", data=PNG.strip("=").ljust(MOST_IMAGES // 2, "A"), mime_type="image/png")
    outcome = outcome_of(CallToolResult(content=[half, half, half]))
    assert len(outcome.images) == 2
    assert "too large to be shown" in outcome.text


@pytest.mark.parametrize(
    "lie",
    [
        {"result": {}},
        {"result": {"content": "x"}},
        {"result": {"content": [{"type": "alien"}]}},
        {"result": 5},
        {"error": {"code": -32000, "message": "out of order"}},
        {"error": "x"},
    ],
)
def test_an_answer_that_is_none_is_a_failure(entry, lie):
    async def task(tools):
        assert (await tools["bad__it"].call({})).failed

    # A malformed message is no answer at all, so it ends with the time.
    using({"bad": entry("raw", listed("it"), json.dumps({"it": lie}), timeout=3)}, task)


def unusable(server, **more):
    async def task(_tools):
        pytest.fail("it was usable")

    with pytest.raises(AgentError) as refused:
        using({"bad": {**server, **more}}, task)
    return str(refused.value)


def test_what_does_not_start_is_told_with_its_last_words(entry):
    told = unusable(entry("broken", env={"THING_API_KEY": "sk-123456789"}))
    assert told.startswith(f"The MCP server 'bad' ({sys.executable}) cannot be used: ")
    assert "cannot open /etc/thing; my key is ***" in told
    assert "sk-123456789" not in told
    told = unusable(entry("mute"), start_timeout=5)
    assert "did not tell its tools within 5 s" in told
    assert "I say nothing" in told
    assert "No such file" in unusable({"command": "/nowhere/server"})


def tools_file(directory, text):
    """More than a command line takes."""
    (directory / "tools.json").write_text(text)
    return f"{directory}/tools.json"


def test_lists_that_cannot_be_are_told(entry, tmp_path):
    assert "does not end" in unusable(entry("endless_pages"))
    assert "lists the tool 'a' twice" in unusable(entry("raw", listed("a", "a")))
    assert "inputSchema" in unusable(entry("raw", listed("a", inputSchema={"type": "string"})))
    many = {"type": "object", "properties": {f"{number:05}": {} for number in range(20_000)}}
    large = tools_file(tmp_path, listed("a", inputSchema=many))
    assert "too large" in unusable(entry("raw_of_file", large))
    assert unusable(entry("raw", '{"tools": 5}'))
    assert "it has no tool 'b', which `tools` asks for; there is a" in unusable(entry("raw", listed("a")), tools=["b"])


def test_names_are_legal_different_and_the_same_each_time(entry):
    names = ["plain", "a.b", "a b", "x" * 100, "x" * 101, "b__c"]

    async def task(tools):
        return {tool.description: name for name, tool in tools.items()}

    servers = {"a": entry("raw", listed(*names)), "a__b": entry("raw", listed("c"))}
    found = using(servers, task)
    assert found["plain"] == "a__plain"
    assert len(set(found.values())) == len(names) + 1
    assert all(check_name(name) for name in found.values())
    assert using(servers, task) == found


def test_only_the_tools_that_are_asked_for_are_there(entry):
    async def task(tools):
        assert list(tools) == ["s__b", "s__a"]

    using({"s": entry("raw", listed("a", "b", "c"), tools=["b", "a"])}, task)


def test_a_long_description_is_cut_and_says_so(entry):
    async def task(tools):
        assert tools["s__a"].description.endswith("x [cut off]")
        assert len(tools["s__a"].description) < 21_000

    using({"s": entry("raw", listed("a", description="x" * 50_000))}, task)


@pytest.mark.parametrize("kind", ["deaf", "leaves_a_child", "leaves_a_daemon"])
def test_nothing_is_left_of_a_server_that_does_not_want_to_end_or_leaves_others_behind(entry, tmp_path, kind):
    def pids():
        return list(map(int, (tmp_path / "pids").read_text().split()))

    async def task(_tools):
        assert not any(map(is_gone, pids())), "the control: they were there"

    async def wait():
        with anyio.fail_after(LONG):
            while not all(map(is_gone, pids())):  # noqa: ASYNC110 - a process that was killed tells nobody
                await anyio.sleep(0.01)

    using({"s": entry(kind, str(tmp_path / "pids"))}, task)
    anyio.run(wait)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_nothing_is_left_after_a_cancellation(entry, tmp_path, backend):
    async def main():
        async with anyio.create_task_group() as tasks:

            async def work():
                async with attached({"s": entry("raw", listed("a"), '{"a": "hang"}')}) as tools:
                    tasks.start_soon(cancel_when_blocked)
                    await tools[0].call({})

            async def cancel_when_blocked():
                await anyio.wait_all_tasks_blocked()
                pids.extend(children())
                tasks.cancel_scope.cancel()

            tasks.start_soon(work)

    pids = []
    anyio.run(main, backend=backend)
    assert len(pids) == 1
    assert all(map(is_gone, pids))


def children():
    """The servers that run beneath this process."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"servers.py" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
    return found


def test_nothing_is_left_after_a_cancellation_of_the_start(entry):
    async def main():
        with anyio.move_on_after(0.5):
            async with attached({"s": entry("mute")}):
                pytest.fail("it started")

    anyio.run(main)
    assert children() == []


def test_what_is_raised_within_comes_out_as_it_is(entry):
    async def task(_tools):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        using({"s": entry("raw", listed("a"))}, task)
    assert children() == []


def test_a_server_that_cannot_be_is_refused_before_anything_starts():
    async def task(_tools):
        pytest.fail("it started")

    with pytest.raises(InvalidInput, match="needs the variable NOT_SET_ANYWHERE"):
        using({"s": {"command": "true", "env": {"A": "${NOT_SET_ANYWHERE}"}}}, task)


def test_without_servers_there_are_no_tools():
    async def task(tools):
        return tools

    assert using({}, task) == {}


def test_without_the_package_it_is_told_how_to_get_it(entry, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    told = unusable(entry("mute"))
    assert "need the package mcp" in told
    assert "pip install 'atoll[mcp]'" in told
