"""Messages of every revision, and messages that nobody should send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st
from tests.mcp.lineclient import HELLO, LineClient
from tests.thorough import examples

from atoll.mcp.encoding import encoded
from atoll.mcp.messages import MAX_MESSAGE

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
OLD = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.fixture(scope="module")
def talker():
    """A server that is told anything; it must live to the end."""
    with LineClient("--with-echo") as client:
        yield client
        assert client.ask("ping", id="last")["result"] == {}
        assert client.end() == 0
        assert client.process.stderr.read() == b""


def code_of(answer):
    return answer["error"]["code"]


@pytest.mark.parametrize("revision", OLD)
def test_each_revision_gets_what_it_knows(revision):
    with LineClient(hello={**HELLO, "protocolVersion": revision}) as client:
        assert client.hello["protocolVersion"] == revision
        tool = client.ask("tools/list")["result"]["tools"][0]
        assert ("annotations" in tool) == (revision >= "2025-03-26")
        assert ("outputSchema" in tool) == (revision >= "2025-06-18")
        result = client.tool("execute_python", code="1 + 1")
        assert ("structuredContent" in result) == (revision >= "2025-06-18")
        assert result["content"] == [{"type": "text", "text": "2"}]
        batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (100, 101)]
        client.write(batch)
        if revision <= "2025-03-26":
            assert [answer["id"] for answer in client.read()] == [100, 101]
        else:
            assert code_of(client.read()) == -32600


def test_an_unknown_revision_gets_the_newest_that_says_hello():
    for asked in ("1999-01-01", "2099-01-01", "2026-07-28"):
        with LineClient(hello={**HELLO, "protocolVersion": asked}) as client:
            assert client.hello["protocolVersion"] == "2025-11-25"


def test_a_stateless_client_says_no_hello():
    with LineClient(hello=None) as client:
        found = client.ask("server/discover", {"_meta": META})["result"]
        assert found["supportedVersions"] == [*OLD, "2026-07-28"]
        assert found["resultType"] == "complete"
        result = client.ask("tools/call", {"name": "execute_python", "arguments": {"code": "2"}, "_meta": META})[
            "result"
        ]
        assert result["resultType"] == "complete"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "atoll"
        assert code_of(client.ask("ping", {"_meta": META})) == -32601
        assert code_of(client.ask("initialize", {**HELLO, "_meta": META})) == -32601


def test_half_an_envelope_is_refused(talker):
    version = "io.modelcontextprotocol/protocolVersion"
    assert code_of(talker.ask("tools/list", {"_meta": {version: "2026-07-28"}})) == -32602
    assert code_of(talker.ask("tools/list", {"_meta": {**META, version: 5}})) == -32602
    unknown = talker.ask("tools/list", {"_meta": {**META, version: "2099-01-01"}})
    assert (code_of(unknown), unknown["error"]["data"]["supported"]) == (-32022, ["2026-07-28"])
    assert code_of(talker.ask("server/discover")) == -32602


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 50_000, -32700),
        (b'{"jsonrpc":"2.0","id":1' + b"0" * 5000 + b',"method":"ping"}', -32700),
        (b"nonsense", -32700),
        (b"1", -32600),
        (b"null", -32600),
        (b'""', -32600),
        (b"[]", -32600),
        (b"[[[]]]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":"a"}', -32600),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"_meta":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"\\ud800"}', -32601),
        (b'{"jsonrpc":"2.0","id":"a","method":"no/such"}', -32601),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call"}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":["x"]}}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"no"}}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":[]}}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"x"}}', -32602),
        (b'{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}', -32602),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_the_error_for_it(talker, line, code):
    talker.write(line + b"\n")
    assert code_of(talker.read()) == code


def test_a_message_that_is_too_long_is_refused_and_forgotten(talker):
    piece = b"x" * (1 << 20)
    for _ in range(MAX_MESSAGE // len(piece) + 2):
        talker.write(piece)
    talker.write(b"\n")
    assert code_of(talker.read()) == -32700
    text = "y" * (MAX_MESSAGE // 4)
    echoed = talker.ask("tools/call", {"name": "echo", "arguments": {"text": text}})
    assert echoed["result"]["structuredContent"]["text"] == text


def test_what_means_nothing_is_passed_over(talker):
    for line in (b"", b"  ", b"\r", b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","method":"who/knows"}'):
        talker.write(line + b"\n")
    assert talker.ask("ping")["result"] == {}


def test_ids_come_back_as_they_were(talker):
    for id in (0, -1, 2**70, "", "text", "ü", "\u2028", "a\nb", "\U0001f600"):
        assert talker.ask("ping", id=id)["id"] == id


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WORDS = ("jsonrpc", "id", "method", "params", "_meta", "name", "arguments", "code", "session_id", "result")
MESSAGES = st.dictionaries(st.sampled_from(WORDS), JSON | st.sampled_from(["2.0", "tools/call", "echo", 1]), max_size=6)
CALLS = st.builds(
    lambda tool, arguments, meta: {"name": tool, "arguments": arguments, "_meta": meta},
    st.sampled_from(["echo", "get_repl_context", "list_sessions", "agent_status", "destroy_session", "nothing"]) | JSON,
    st.dictionaries(st.sampled_from(["text", "session_id", "context", "name", "id", "x"]), JSON, max_size=3) | JSON,
    JSON,
)


@examples(2000, 150)
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
       | MESSAGES.map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_line_ends_the_server(talker, line):
    talker.write(line.replace(b"\n", b" ") + b"\n")
    talker.write({"jsonrpc": "2.0", "id": "still here", "method": "ping"})
    seen = []
    while not seen or seen[-1].get("id") != "still here" or "result" not in seen[-1]:
        message = talker.read()
        assert isinstance(message, dict)
        seen.append(message)
    assert len(seen) <= 2, "one line has one answer"


@examples(1000, 80)
@given(CALLS)
def test_no_call_ends_the_server(talker, params):
    answer = talker.ask("tools/call", params)
    assert ("result" in answer) != ("error" in answer)
    if "error" in answer:
        assert answer["error"]["code"] in (-32602, -32022)


@examples(500, 100)
@given(JSON)
def test_whatever_is_answered_is_json_to_everybody(value):
    text = encoded(value)
    assert "\n" not in text
    json.loads(text, parse_constant=pytest.fail)
    text.encode("ascii")
    json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")


def test_an_id_that_cannot_be_sent_back_is_refused(talker):
    answer = talker.ask("ping", id="\U0001f600")
    assert answer["id"] == "\U0001f600"
    talker.write(b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}\n')
    refused = talker.read()
    assert (refused["id"], code_of(refused)) == (None, -32600)
    params = {"name": "list_sessions", "arguments": {}, "_meta": {"progressToken": "\ud800"}}
    assert code_of(talker.ask("tools/call", params)) == -32602
    params["_meta"]["progressToken"] = "whole"
    assert "result" in talker.ask("tools/call", params)


def test_true_is_no_number_of_a_request(client):
    client.tool("execute_python", code="1")
    arguments = {"code": "import time\ntime.sleep(1)\n7"}
    client.begin("tools/call", {"name": "execute_python", "arguments": arguments}, id=1)
    for strange in (True, 1.0, "1", None, [1]):
        client.tell("notifications/cancelled", {"requestId": strange})
    assert client.answer(1)["result"]["structuredContent"]["result"] == "7"
    client.begin("tools/call", {"name": "execute_python", "arguments": {"code": "while True: pass"}}, id=1)
    client.tell("notifications/cancelled", {"requestId": 1})
    assert client.data("execute_python", code="8")["result"] == "8", "this does cancel it"
