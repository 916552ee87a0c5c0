"""Tools of MCP servers that are reached at a URL."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import sys
import threading
import time
from typing import ClassVar

import anyio
import pytest

from atoll.agent.mcptools import attached
from atoll.agent.toolspec import Outcome
from atoll.errors import AgentError

from .conftest import SERVERS
from .servers import PNG

LONG = 120


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The URL of an honest server that wants a key, in a process of its own."""
    port_file = tmp_path_factory.mktemp("http") / "port"
    with subprocess.Popen([sys.executable, SERVERS, "http", port_file]) as process:
        try:
            deadline = time.monotonic() + LONG
            while not port_file.exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port_file.read_text()}/mcp", process
        finally:
            process.kill()


def using(servers, task, backend="asyncio"):
    async def main():
        async with attached(servers) as tools:
            return await task({tool.name: tool for tool in tools})

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_honest_server_does_what_it_is_asked(honest, backend, monkeypatch):
    monkeypatch.setenv("THE_KEY", "sesame-open")

    async def task(tools):
        assert tools["shop__add"].idempotent
        assert await tools["shop__add"].call({"a": 1, "b": 2}) == Outcome("3")
        assert await tools["shop__picture"].call({}) == Outcome("here", images=(("image/png", PNG),))
        assert (await tools["shop__fail"].call({"why": "no apples"})).failed
        said = await tools["shop__put"].call({"key": "sesame-open"})
        assert said == Outcome("put ***"), "a key that was given to a server does not come back"

    using({"shop": {"url": honest[0], "headers": {"X-API-Key": "${THE_KEY}"}, "timeout": LONG}}, task, backend)


async def never(_tools):
    pytest.fail("it was usable")


def test_a_wrong_key_is_told_and_not_shown(honest):
    with pytest.raises(AgentError) as refused:
        using({"shop": {"url": f"{honest[0]}?token=also-secret", "headers": {"X-API-Key": "wrong-key"}}}, never)
    told = str(refused.value)
    assert "The MCP server 'shop' (http://127.0.0.1:" in told
    assert "wrong-key" not in told
    assert "also-secret" not in told


def test_where_nobody_listens_is_told():
    with pytest.raises(AgentError, match=r"The MCP server 'shop'.* cannot be used"):
        using({"shop": {"url": "http://127.0.0.1:1/mcp"}}, never)


def test_a_server_that_dies_in_the_middle_is_told(tmp_path):
    port_file = tmp_path / "port"
    with subprocess.Popen([sys.executable, SERVERS, "http", port_file]) as process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        deadline = time.monotonic() + LONG
        while not port_file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)

        async def task(tools):
            assert await tools["shop__add"].call({"a": 1, "b": 2}) == Outcome("3"), "the control"
            process.kill()
            process.wait()
            outcome = await tools["shop__add"].call({"a": 1, "b": 2})
            assert outcome.failed
            assert "The MCP server 'shop'" in outcome.text

        url = f"http://127.0.0.1:{port_file.read_text()}/mcp"
        using({"shop": {"url": url, "headers": {"X-API-Key": "sesame-open"}, "timeout": 30}}, task)


class Bad(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, dict[str, str]]]] = []
    elsewhere = ""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, dict(self.headers)))
        if self.path == "/redirect":
            self.send_response(307)
            self.send_header("Location", self.elsewhere)
            self.end_headers()
        elif self.path == "/flood":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x" * (1 << 20))
        elif self.path == "/hang":
            self.server.may_end.wait()

    do_GET = do_DELETE = do_POST  # noqa: N815 - as the standard library has it

    def log_message(self, *_args):
        pass


@pytest.fixture
def bad():
    """The URL of a bad server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bad)
    server.may_end = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Bad.asked = []
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.may_end.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_flood_is_cut_off(bad):
    with pytest.raises(AgentError, match="cannot be used"):
        using({"shop": {"url": f"{bad}/flood", "timeout": LONG}}, never)


def test_silence_is_told(bad):
    with pytest.raises(AgentError, match="cannot be used"):
        using({"shop": {"url": f"{bad}/hang", "start_timeout": 1}}, never)


def test_a_redirect_takes_no_key_elsewhere(bad):
    Bad.elsewhere = bad.replace("127.0.0.1", "localhost") + "/elsewhere"
    with pytest.raises(AgentError):
        using({"shop": {"url": f"{bad}/redirect", "headers": {"X-API-Key": "sesame-open"}, "timeout": 10}}, never)
    assert [path for path, _ in Bad.asked if path == "/elsewhere"] == []
    assert any(headers.get("X-API-Key", headers.get("x-api-key")) == "sesame-open" for _, headers in Bad.asked)
