"""The official client, over stdio and HTTP, in every way it can begin a conversation."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import uuid
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from tests.mcp.httpserving import HttpProcess
from tests.mcp.lineclient import sweep

from atoll import Sandbox
from mcp import Client

MODES = ["auto", "legacy", "2026-07-28"]
ENDLESS = "while True: pass"


@asynccontextmanager
async def over_stdio(space, mode, *options):
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "atoll", "mcp-serve", "--space", space, *options],
        env={"ATOLL_HOME": os.environ["ATOLL_HOME"]},
    )
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


@asynccontextmanager
async def over_http(space, mode, *options):
    with HttpProcess(*options, space=space, destroy=False) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(server.url, http_client=http), mode=mode) as client,
        ):
            yield client


@pytest.fixture(params=[over_stdio, over_http], ids=["stdio", "http"])
def connect(request):
    return request.param


@pytest.fixture
def space():
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    sweep(name)


async def eventually(condition):
    """Look again and again until it is so."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in another process
            await anyio.sleep(0.02)


def conversation(test):
    """Run a coroutine function as a test; `anyio.run` needs no plugin."""

    @functools.wraps(test)
    def run(**arguments):
        anyio.run(functools.partial(test, **arguments))

    return run


@pytest.mark.parametrize("mode", MODES)
@conversation
async def test_a_whole_conversation(connect, space, mode):
    async with connect(space, mode) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == 19
        done = await client.call_tool("execute_python", {"code": "x = 20\nx + 1"})
        assert done.structured_content["result"] == "21"
        assert done.content[0].text == "21"
        png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
        code = f"class P:\n def _repr_mimebundle_(s, **k): return {{'image/png': '{png}', 'text/plain': 'p'}}\nP()"
        shown = await client.call_tool("execute_python", {"code": code})
        assert [block.type for block in shown.content] == ["text", "image"]
        listed = await client.call_tool("list_sessions", {})
        assert listed.structured_content["sessions"][0]["session_id"] == "default"
        for name, arguments in {
            "run_command": {"command": "echo hi > f; cat f"},
            "read_file": {"path": "f"},
            "list_files": {},
            "get_repl_context": {},
            "set_repl_context": {"name": "y", "value": 1},
            "snapshot": {"name": "s"},
            "rollback": {"name": "s"},
            "fork": {"new_session_id": "twin"},
            "clear_repl_context": {},
            "write_file": {"path": "g", "content": "x"},
            "destroy_session": {"session_id": "twin"},
        }.items():
            outcome = await client.call_tool(name, arguments)  # the client holds it against the output schema
            assert not outcome.is_error, (name, outcome.content)
        wrong = await client.call_tool("read_file", {"path": "nowhere"})
        assert wrong.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@conversation
async def test_lines_come_as_progress(connect, space, mode):
    heard = []

    async def progress(count, total, message):
        heard.append(message)

    async with connect(space, mode) as client:
        await client.call_tool(
            "execute_python", {"code": "for i in range(3): print('line', i)"}, progress_callback=progress
        )
        await eventually(lambda: len(heard) == 3)
    assert heard == ["line 0", "line 1", "line 2"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@conversation
async def test_giving_up_a_call_ends_it(connect, space, mode):
    async with connect(space, mode) as client:
        await client.call_tool("execute_python", {"code": "kept = 5"})
        sandbox = Sandbox.find({"atoll.mcp.space": space})

        def busy():
            return any(context.busy for context in sandbox.contexts.list())

        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "execute_python", {"code": ENDLESS, "timeout": 600})
            await eventually(busy)
            group.cancel_scope.cancel()
        await eventually(lambda: not busy())
        done = await client.call_tool("execute_python", {"code": "kept"})
        assert done.structured_content["result"] == "5"


@conversation
async def test_a_session_is_found_again_by_another_server(connect, space):
    async with connect(space, "auto") as client:
        await client.call_tool("execute_python", {"code": "x = 'kept'", "session_id": "mine"})
    async with connect(space, "legacy") as client:
        done = await client.call_tool("execute_python", {"code": "x", "session_id": "mine"})
        assert done.structured_content["result"] == "'kept'"


@conversation
async def test_a_figure_of_matplotlib_is_an_image(space):
    # Where a sandbox sees the packages of its host; in others they are given with --packages.
    async with over_stdio(space, "auto", "--driver", "inprocess", "--memory", "1G") as client:
        code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
        done = await client.call_tool("execute_python", {"code": code, "timeout": 120})
        assert any(block.type == "image" and block.mime_type == "image/png" for block in done.content), done


def test_it_starts_without_the_sdk_or_an_event_loop():
    code = (
        "import sys; from atoll.cli import mcp_serve; from atoll.mcp import stdio, server, sessions, execute\n"
        "print(sorted({'mcp', 'asyncio', 'anyio', 'pydantic', 'httpx', 'ssl'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
