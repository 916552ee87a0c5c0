"""Servers that want to take all the time and memory there is, run something, stay behind, or pass for another."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.server
import json
import re
import signal
import subprocess
import sys
import threading

import anyio
import pytest
from hypothesis import given, strategies as st

from atoll.agent import mcpmessages
from atoll.agent.mcpanswers import outcome_of
from atoll.agent.mcptools import _named
from atoll.agent.toolspec import Outcome, Tool, check_arguments
from atoll.errors import AgentError, InvalidInput

from ..thorough import examples
from .servers import PNG
from .test_mcp_stdio import LONG, is_gone, listed, tools_file, unusable, using

# What the answers below do not fit, so whoever tries it fails them. A hostile one would take for ever instead.
FORM = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^b$"}}}
UNFIT = {"content": [], "structuredContent": {"a": "x"}}


def calling(server, name="bad__it"):
    async def task(tools):
        return await tools[name].call({})

    return using({"bad": server}, task)


@pytest.mark.parametrize("key", ["outputSchema", "output_schema"])
def test_no_expression_of_a_server_is_run_on_its_answers(entry, key):
    server = entry("raw", listed("it", **{key: FORM}), json.dumps({"it": {"result": UNFIT}}), timeout=LONG)
    assert calling(server) == Outcome('{"a": "x"}')


def test_no_expression_of_a_server_is_run_on_arguments():
    form = {**FORM, "patternProperties": {"^c$": False}, "propertyNames": {"pattern": "^b$"}}
    assert check_arguments(form, '{"a": "x", "c": 1}') == {"a": "x", "c": 1}
    with pytest.raises(InvalidInput, match="must be a string"):
        check_arguments(form, '{"a": 1}')


@pytest.mark.parametrize(
    ("flood", "reason"),
    [
        ("pings unread", "it sent more than 100 requests and did not take the answers"),
        ("endless notes", "it sent more than 20000 messages within a minute"),
        ("endless chatter", "it sent more than 20000 messages within a minute"),
        ("endless blanks", "it sent more than 20000 messages within a minute"),
        ("many values", "it wrote a line with more than 200000 values"),
    ],
)
def test_a_flood_ends_the_connection(entry, flood, reason):
    outcome = calling(entry("raw", listed("it"), json.dumps({"it": flood}), timeout=LONG))
    assert outcome.failed
    assert reason in outcome.text


def test_what_is_no_flood_does_not(entry):
    def told(what):
        return calling(entry("raw", listed("it"), json.dumps({"it": what}), timeout=LONG)).text

    assert told("pings") == "300 answered"
    assert told("many commas") == 'a,"b",\\' * 100_000
    assert told("many parts") == "x\n" * 1000 + "[500 more parts of the answer were left out]"


JSON = st.recursive(
    st.none() | st.integers() | st.text('",[{\\ax', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('",[{\\a', max_size=4), inner, max_size=4),
)


@examples(1000, 100)
@given(JSON, st.integers(0, 12))
def test_only_what_is_no_string_counts(value, most):
    data = json.dumps(value).encode()
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcpmessages, "MOST_VALUES", most)
        assert mcpmessages.is_crowded(data) == (len(re.findall(rb"[\[{,]", outside)) > most)


def result_of(*blocks):
    from mcp_types import CallToolResult

    return CallToolResult.model_validate({"content": blocks})


def image(data, mime="image/png"):
    return {"type": "image", "data": data, "mimeType": mime}


def encoded(content):
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
    ],
)
def test_an_image_is_what_its_bytes_say(content, kind):
    assert outcome_of(result_of(image(encoded(content)))).images == ((kind, encoded(content)),)
    assert outcome_of(result_of(image(encoded(content), "image/jpg"))).images == ((kind, encoded(content)),)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (image(PNG, 'text/html; "'), "not of a type that models see"),
        (image(PNG, "image/svg+xml"), "not of a type that models see"),
        (image(PNG, ""), "not of a type that models see"),
        (image("!!!not base64"), "not in base64"),
        (image(PNG + "\n"), "not in base64"),
        (image(PNG[:-1]), "not in base64"),
        (image("é"), "not in base64"),
        (image(""), "not what it says"),
        (image(encoded(b"<svg>")), "not what it says"),
    ],
)
def test_what_is_no_image_is_told_in_words(block, problem):
    outcome = outcome_of(result_of(block))
    assert outcome.images == ()
    assert outcome.text.endswith(f"{problem}]")


def test_more_images_than_models_take_are_told():
    outcome = outcome_of(result_of(*[image(PNG)] * 22))
    assert len(outcome.images) == 20
    assert outcome.text == "\n".join(["[an image, image/png, 9 bytes: one too many to be shown]"] * 2)


def test_more_than_a_model_can_be_told_of_one_server_is_refused(entry, tmp_path):
    names = ["a", "b", "c", "d"]
    large = tools_file(tmp_path, listed(*names, inputSchema={"type": "object", "description": "x" * 150_000}))
    told = unusable(entry("raw_of_file", large))
    assert re.search("its 4 tools take 600[0-9]{3} characters to describe, and 500000 are the most", told)
    assert "name those that are needed in `tools`" in told

    async def task(tools):
        assert list(tools) == ["s__a", "s__c"]

    using({"s": entry("raw_of_file", large, tools=["a", "c"])}, task)


def a_tool(name):
    return Tool(name, name, {"type": "object"}, None)


def test_no_tool_takes_the_name_of_another():
    (marked,) = _named([("s", a_tool("a b"))])
    twin = marked.name.removeprefix("s__")
    for tools in ([("s", a_tool(twin)), ("s", a_tool("a b"))], [("s", a_tool("a b")), ("s", a_tool(twin))]):
        with pytest.raises(AgentError, match=f"Two tools of MCP servers would be called '{marked.name}'"):
            _named(tools)
    both = [("a", a_tool("b__read")), ("a__b", a_tool("read"))]
    named = {tool.description: tool.name for tool in _named(both)}
    assert "a__b__read" not in named.values(), "neither server passes for the other"
    assert len(set(named.values())) == 2
    assert {tool.description: tool.name for tool in _named(both[::-1])} == named


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing stands between")
def test_a_server_ignores_no_signal_that_it_did_not_choose_to():
    ask = ["grep", "SigIgn", "/proc/self/status"]
    direct = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=LONG).stdout
    assert " ".join(direct.split()) in " ".join(unusable({"command": ask[0], "args": ask[1:]}).split())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is there to do it")
def test_nothing_is_left_when_the_process_that_started_it_is_killed(entry, tmp_path):
    servers = {"s": entry("leaves_a_daemon", str(tmp_path / "pids"))}
    program = (
        "import anyio, json, os, signal, sys\n"
        "from atoll.agent.mcptools import attached\n"
        "async def main():\n"
        "    async with attached(json.loads(sys.argv[1])):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "anyio.run(main)\n"
    )
    command = [sys.executable, "-c", program, json.dumps(servers)]
    assert subprocess.run(command, timeout=LONG, check=False).returncode == -signal.SIGKILL
    pids = list(map(int, (tmp_path / "pids").read_text().split()))
    assert len(pids) == 2

    async def wait():
        with anyio.fail_after(LONG):
            while not all(map(is_gone, pids)):  # noqa: ASYNC110 - a process that was killed tells nobody
                await anyio.sleep(0.01)

    anyio.run(wait)


def test_what_cannot_be_run_is_told(tmp_path):
    (tmp_path / "text").write_text("no program")
    assert "Permission denied" in unusable({"command": str(tmp_path / "text")})
    (tmp_path / "text").chmod(0o755)
    assert "it cannot be started: Exec format error" in unusable({"command": str(tmp_path / "text")})
    assert "No such file" in unusable({"command": "no-such-program-anywhere"})
    (tmp_path / "good").write_text("#!/bin/sh\necho it is run >&2; exit 1\n")
    (tmp_path / "good").chmod(0o755)
    assert "it is run" in unusable({"command": "./good", "cwd": str(tmp_path)}), "the control"


class Speaking(http.server.BaseHTTPRequestHandler):
    """Answers a call with what the server holds for it: a type, an encoding, and bytes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked_for.add(self.headers["Accept-Encoding"])
        if message.get("method") == "tools/call":
            kind, encoding, body = self.server.answer
            body = body.replace(b'"ID"', json.dumps(message["id"]).encode())
            self.reply(200, gzip.compress(body) if "gzip" in (encoding or "") else body, kind, encoding)
        elif "id" not in message:
            self.reply(202, b"")
        elif message["method"] == "initialize":
            about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            self.say(message, result={**about, "serverInfo": {"name": "raw", "version": "1"}})
        elif message["method"] == "tools/list":
            self.say(message, result=json.loads(listed("it", outputSchema=FORM)))
        else:
            self.say(message, error={"code": -32601, "message": "unknown"})

    def say(self, message, **parts):
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **parts}).encode())

    def reply(self, status, body, kind="application/json", encoding=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def do_GET(self):
        self.reply(405, b"")

    do_DELETE = do_GET  # noqa: N815 - as the standard library has it

    def log_message(self, *_args):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_args):
        """A client that goes away in the middle is what is tested."""


@pytest.fixture
def speaking():
    server = Quiet(("127.0.0.1", 0), Speaking)
    server.asked_for = set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def told(kind, body, encoding=None):
        server.answer = (kind, encoding, body)
        return calling({"url": f"http://127.0.0.1:{server.server_address[1]}/mcp", "timeout": LONG})

    told.server = server
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def answer(result):
    return json.dumps({"jsonrpc": "2.0", "id": "ID", "result": result}).encode()


def event(data, end=b"\n"):
    return b"event: message" + end + b"data: " + data + end + end


ONE = "application/json"
EVENTS = "text/event-stream"
CROWDED = answer({"content": [], "structuredContent": {"a": [[]] * 250_000}})
COMMAS = answer({"content": [{"type": "text", "text": 'a,"b",' * 50_000}]})


def test_answers_over_http_are_taken_as_they_are(speaking):
    assert speaking(ONE, answer(UNFIT)) == Outcome('{"a": "x"}'), "no expression of the server is run"
    assert speaking.server.asked_for == {"identity"}
    assert speaking(ONE, answer(UNFIT), "identity") == Outcome('{"a": "x"}')
    for end in (b"\n", b"\r\n", b"\r"):
        comment = b": x" + end + end
        assert speaking(EVENTS, comment + event(answer(UNFIT), end)) == Outcome('{"a": "x"}')
    assert speaking(ONE, COMMAS).text == 'a,"b",' * 50_000
    assert speaking(EVENTS + "; charset=utf-8", event(COMMAS)).text == 'a,"b",' * 50_000


@pytest.mark.parametrize(
    ("kind", "encoding", "body", "reason"),
    [
        (ONE, "gzip", answer(UNFIT), "a compressed answer"),
        (EVENTS, "gzip", event(answer(UNFIT)), "a compressed answer"),
        (ONE, "identity, gzip", answer(UNFIT), "a compressed answer"),
        (ONE, None, b" " * (5 << 20) + answer(UNFIT), "an answer of more than 4 MiB"),
        (EVENTS, None, b": " + b"x" * (5 << 20) + b"\n\n" + event(answer(UNFIT)), "an answer of more than 4 MiB"),
        (ONE, None, CROWDED, "an answer with more than 200000 values"),
        (EVENTS, None, event(CROWDED), "an answer with more than 200000 values"),
        (EVENTS, None, b': "\n' + event(CROWDED), "an answer with more than 200000 values"),
        (EVENTS, None, b': "\r' + event(CROWDED, b"\r"), "an answer with more than 200000 values"),
        (EVENTS + "; charset=utf-7", None, event(answer(UNFIT)), "an answer that is not in UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_answers_over_http_that_are_too_much_are_refused(speaking, kind, encoding, body, reason):
    outcome = speaking(kind, body, encoding)
    assert outcome.failed
    assert f"it sent {reason}" in outcome.text
