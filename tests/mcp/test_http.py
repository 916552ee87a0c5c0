"""Streamable HTTP, byte by byte: who may ask, what is refused, and what ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given, strategies as st
from tests.mcp.httpserving import TOKEN, HttpProcess, call, everything, parts
from tests.mcp.test_running import ENDLESS, busy, until
from tests.thorough import examples

from atoll import Sandbox
from atoll.mcp.http import MAX_CONNECTIONS
from atoll.mcp.httpwire import REASONS, Broken, body_length, parse_head

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
FIELDS = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list"}


@pytest.fixture(scope="module")
def server():
    with HttpProcess() as server:
        server.hello()
        yield server


def sandbox(server, session="default"):
    return Sandbox.find({"atoll.mcp": session, "atoll.mcp.space": server.space})


def stateless(method, id=1, meta=META, **params):
    return call(method, {**params, "_meta": meta}, id=id)


def test_a_client_says_hello_and_is_known_from_then_on(server):
    assert server.tool("execute_python", code="1 + 1")["structuredContent"]["result"] == "2"
    assert server.post(call("ping"), Mcp_Session_Id=None)[0] == 400
    assert server.post(call("ping"), Mcp_Session_Id="0" * 48)[0] == 404
    assert server.post({"jsonrpc": "2.0", "method": "notifications/initialized"})[0] == 202
    assert server.post({"jsonrpc": "2.0", "id": 1, "result": {}})[0] == 202


def test_the_end_of_a_client_is_its_end():
    with HttpProcess() as server:
        server.hello()
        assert server.send("DELETE")[0] == 204
        assert server.post(call("ping"))[0] == 404
        assert server.send("DELETE")[0] == 404


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"bearer{TOKEN}", "Bearer \xff"]
)
def test_without_the_token_nothing_is_served(server, given):
    status, fields, body = server.post(call("tools/list"), Authorization=given)
    assert (status, fields["www-authenticate"]) == (401, "Bearer")
    assert TOKEN.encode() not in body
    assert server.post(call("tools/list"))[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", None, "10.0.0.1", "127.0.0.1:1@evil.example",
     "localhost:80@evil.example", "[::1]evil.example", "[::1", "[::1]:x", "localhost:", "localhost:80:80",
     "localhost/x", "user@localhost", "localhost evil.example"],
)  # fmt: skip
def test_another_name_for_our_address_is_refused(server, host):
    assert server.post(call("ping"), Host=host)[0] == 421
    for ours in ("localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]", "[::1]:80"):
        assert server.post(call("ping"), Host=ours)[0] == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://localhost.evil.example", "file://", "", "http://localhost:x@evil.example",
     "http://localhost@evil.example", "http://[::1]evil.example", "http://localhost:80/", "localhost", "ftp://localhost",
     "http://localhost:1, http://evil.example"],
)  # fmt: skip
def test_pages_of_other_origins_are_refused(server, origin):
    assert server.post(call("ping"), Origin=origin)[0] == 403
    assert server.send("OPTIONS", Origin=origin)[0] == 403
    status, fields, _ = server.post(call("ping"), Origin="http://localhost:3000")
    assert (status, fields["access-control-allow-origin"]) == (200, "http://localhost:3000")


def test_only_what_is_needed_is_there(server):
    assert server.send("GET")[0] == 405
    assert server.send("GET", path="/")[0] == 404
    assert server.send("POST", b"{}", path="/mcp/../etc")[0] == 404
    assert server.send("TRACE")[0] == 405
    assert server.post(call("ping"), Content_Type="text/plain")[0] == 415
    assert server.post(call("ping"), Accept="text/html")[0] == 406


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Content_Length": None}, 411),
        ({"Content_Length": "-1"}, 400),
        ({"Content_Length": "1, 2"}, 400),
        ({"Content_Length": "+5"}, 400),
        ({"Content_Length": "99999999999"}, 413),
        ({"Content_Length": "9" * 5000}, 400),
        ({"X": "a\x00b"}, 400),
        ({"X": "y" * 40000}, 431),
        ({"X": "a\nInjected: b"}, 400),
        ({"X": "a\r\n folded"}, 400),
        ({"X": "a\r\nContent-Length: 3"}, 400),
        ({"X": "a\r\nHost: twice"}, 400),
        ({"X": "a\r\nAuthorization: Bearer x"}, 400),
        ({"X ": "space"}, 400),
        ({"MCP_Protocol_Version": "1999-01-01"}, 400),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(server, wrong, status):
    answer = server.raw(server.request("POST", json.dumps(call("ping")).encode(), **wrong))
    assert parts(answer)[0] == status
    assert answer.count(b"HTTP/1.1") == 1, "nothing that follows is taken for another request"
    assert server.post(call("ping"))[0] == 200


@pytest.mark.parametrize(
    "data",
    [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /mcp HTTP/2.0\r\n\r\n", b"get /mcp HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n",
     b"POST /mcp HTTP/1.1 \r\n\r\n", b"POST  /mcp HTTP/1.1\r\n\r\n", b"A" * 40000],
)  # fmt: skip
def test_what_is_no_request_is_refused(server, data):
    assert parts(server.raw(data))[0] in (400, 431)


def test_many_fields_are_too_many(server):
    lines = "".join(f"X-{i}: 1\r\n" for i in range(200)).encode()
    assert parts(server.raw(b"POST /mcp HTTP/1.1\r\n" + lines + b"\r\n"))[0] == 431


def test_bodies_that_are_no_messages_get_an_error(server):
    for body in (b"", b"{", b"[]", b"null", b"1", b'"x"', b"[" * 100000, b"\xff", b'{"jsonrpc":"1.0"}', b"{}"):
        status, _, answer = server.post(body)
        assert status == 400
        assert json.loads(answer)["error"]["code"] in (-32700, -32600)
    assert server.post(call("ping"))[0] == 200


def test_an_old_client_gets_an_answer_of_known_length(server):
    params = {"name": "execute_python", "arguments": {"code": "print('a')"}, "_meta": {"progressToken": 1}}
    request = server.request("POST", json.dumps(call("tools/call", params)).encode())
    status, fields, body = parts(server.raw(request.replace(b"HTTP/1.1", b"HTTP/1.0")))
    assert (status, fields["content-type"], int(fields["content-length"])) == (200, "application/json", len(body))


LINES = st.lists(st.binary(max_size=60) | st.sampled_from([b"Host: x", b"Content-Length: 1", b"A:", b" x"]), max_size=6)


@examples(3000, 300)
@given(st.binary(max_size=40) | st.just(b"POST /mcp HTTP/1.1"), LINES)
def test_a_head_is_read_or_refused(first, lines):
    try:
        head = parse_head(b"\r\n".join([first, *lines]))
        assert 0 <= body_length(head, 1000) <= 1000
    except Broken as error:
        assert error.status in REASONS  # noqa: PT017  # whether it is refused is the head's to decide
    else:
        assert not any(c in "\r\n\0" for text in (head.path, *head.fields, *head.fields.values()) for c in text)


def test_a_connection_is_kept_for_the_next_request(server):
    body = json.dumps(call("ping")).encode()
    with server.connect() as sock:
        for _ in range(3):
            sock.sendall(server.request("POST", body, Connection=None))
            assert b"200 OK" in sock.recv(1 << 16)
        both = server.request("POST", body, Connection=None) + server.request("POST", body)
        sock.sendall(both)
        assert everything(sock).count(b"200 OK") == 2


def test_a_large_body_is_asked_for(server):
    request = server.request("POST", json.dumps(call("ping")).encode(), Expect="100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    with server.connect() as sock:
        sock.sendall(head + b"\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 100")
        sock.sendall(body)
        assert b"200 OK" in everything(sock)


def test_half_a_request_holds_up_nobody(server):
    slow = [server.connect() for _ in range(20)]
    for sock in slow:
        sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: x")
    assert server.post(call("ping"))[0] == 200
    for sock in slow:
        sock.close()


def test_more_connections_than_there_may_be_push_out_idle_ones():
    with HttpProcess() as server:
        server.hello()
        idle = [server.connect() for _ in range(140)]
        assert server.post(call("ping"))[0] == 200
        for sock in idle:
            sock.close()
        assert server.post(call("ping"))[0] == 200


def test_who_was_refused_keeps_nobody_out():
    with HttpProcess() as server:
        server.hello()
        refused = [server.connect() for _ in range(MAX_CONNECTIONS)]
        for sock in refused:
            sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for sock in refused:
            assert sock.recv(12) == b"HTTP/1.1 401"
        assert [server.post(call("ping"))[0] for _ in range(20)] == [200] * 20
        for sock in refused:
            sock.close()


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
def test_who_sends_no_more_may_still_read(server, accept):
    server.tool("execute_python", code="1", session_id="half")
    message = stateless("tools/call", name="execute_python",
                        arguments={"code": "import time\ntime.sleep(1)\n6 * 7", "session_id": "half"})  # fmt: skip
    fields = {**FIELDS, "Mcp_Method": "tools/call", "Mcp_Name": "execute_python", "Accept": accept}
    with server.connect() as sock:
        sock.sendall(server.request("POST", json.dumps(message).encode(), **fields))
        sock.shutdown(socket.SHUT_WR)
        assert b'"result":"42"' in everything(sock)


def test_stateless_requests_need_their_fields_to_agree(server):
    listed = stateless("tools/list")
    status, fields, body = server.post(listed, Mcp_Session_Id=None, **FIELDS)
    result = json.loads(body)["result"]
    assert (status, result["resultType"], len(result["tools"])) == (200, "complete", 19)
    assert "mcp-session-id" not in fields
    mismatched = [
        (listed, {**FIELDS, "Mcp_Method": "tools/call"}),
        (listed, {**FIELDS, "Mcp_Method": None}),
        (listed, {"Mcp_Method": "tools/list"}),
        (stateless("tools/call", name="list_sessions"), {**FIELDS, "Mcp_Method": "tools/call", "Mcp_Name": "apply"}),
        (stateless("tools/call", name="list_sessions"), {**FIELDS, "Mcp_Method": "tools/call"}),
    ]
    for message, wrong in mismatched:
        status, _, body = server.post(message, **wrong)
        assert (status, json.loads(body)["error"]["code"]) == (400, -32020)
    named = {**FIELDS, "Mcp_Method": "tools/call", "Mcp_Name": "=?base64?bGlzdF9zZXNzaW9ucw==?="}
    assert server.post(stateless("tools/call", name="list_sessions"), **named)[0] == 200
    status, _, body = server.post(stateless("nothing/here"), **{**FIELDS, "Mcp_Method": "nothing/here"})
    assert (status, json.loads(body)["error"]["code"]) == (404, -32601)
    status, _, body = server.post(call("tools/list", {"_meta": {}}), **FIELDS)
    assert (status, json.loads(body)["error"]["code"]) == (400, -32602)
    assert server.post([listed], **FIELDS)[0] == 400
    assert server.post({"jsonrpc": "2.0", "method": "notifications/cancelled"}, **FIELDS)[0] == 202


def test_a_newer_revision_is_told_what_is_spoken_here(server):
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    wrong = {"MCP_Protocol_Version": "2099-01-01", "Mcp_Method": "server/discover"}
    status, _, body = server.post(stateless("server/discover", meta=meta), **wrong)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["data"]["supported"]) == (400, -32022, ["2026-07-28"])
    assert json.loads(body)["id"] == 1


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
def test_closing_the_connection_cancels_a_stateless_call(server, accept):
    server.tool("execute_python", code="1", session_id="left")
    message = stateless("tools/call", name="execute_python",
                        arguments={"code": ENDLESS, "timeout": 600, "session_id": "left"})  # fmt: skip
    fields = {**FIELDS, "Mcp_Method": "tools/call", "Mcp_Name": "execute_python", "Accept": accept}
    request = server.request("POST", json.dumps(message).encode(), **fields)
    place = sandbox(server, "left")
    with server.connect() as sock:
        sock.sendall(request)
        until(lambda: busy(place), "the loop runs")
    until(lambda: not busy(place), "the loop ends")


def test_a_client_cancels_its_own_calls_only():
    with HttpProcess() as server:
        server.hello()
        server.tool("execute_python", code="1")
        mine, place = server.session, sandbox(server)
        with server.connect() as sock:
            message = call("tools/call", {"name": "execute_python", "arguments": {"code": ENDLESS, "timeout": 600}}, 7)
            sock.sendall(server.request("POST", json.dumps(message).encode()))
            until(lambda: busy(place), "the loop runs")
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            server.hello()  # another client
            assert server.post(cancel)[0] == 202
            assert server.post({**cancel, "params": {**cancel["params"], "_meta": META}}, **FIELDS)[0] == 202
            assert busy(place), "only its own client may"
            assert server.post(cancel, Mcp_Session_Id=mine)[0] == 202
            status, _, body = parts(everything(sock))
            assert (status, json.loads(body)["error"]["message"]) == (200, "The request was cancelled.")
        until(lambda: not busy(place), "the loop ends")


def test_progress_comes_as_events_and_the_answer_last(server):
    params = {"name": "execute_python", "arguments": {"code": "print('a')\nprint('b')"}, "_meta": {"progressToken": 1}}
    status, fields, body = server.post(call("tools/call", params))
    assert (status, fields["content-type"]) == (200, "text/event-stream")
    events = [json.loads(line[6:]) for line in body.split(b"\r\n") if line.startswith(b"data: ")]
    assert [event["params"]["message"] for event in events[:-1]] == ["a", "b"]
    assert events[-1]["result"]["structuredContent"]["stdout"] == "a\nb\n"
    status, fields, _ = server.post(call("tools/call", params), Accept="application/json")
    assert (status, fields["content-type"]) == (200, "application/json")


def test_batches_of_an_old_revision_are_answered_together():
    with HttpProcess() as server:
        server.hello("2025-03-26")
        status, _, body = server.post([call("ping", id=1), {"jsonrpc": "2.0", "method": "x"}, 5, call("ping", id=2)])
        assert status == 200
        assert [answer.get("id") for answer in json.loads(body)] == [1, None, 2]


def test_the_server_ends_with_a_signal_and_ends_what_runs():
    with HttpProcess() as server:
        server.hello()
        server.tool("execute_python", code="1")
        place = sandbox(server)
        with server.connect() as sock:
            message = call("tools/call", {"name": "execute_python", "arguments": {"code": ENDLESS, "timeout": 600}})
            sock.sendall(server.request("POST", json.dumps(message).encode()))
            until(lambda: busy(place), "the loop runs")
            began = time.monotonic()
            server.process.terminate()
            assert server.process.wait(10) == 0
            assert time.monotonic() - began < 8
        until(lambda: not busy(place), "the loop ends")


def started(*options, **environment):
    command = [sys.executable, "-m", "atoll", "mcp-serve", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60, check=False
    )
    assert done.returncode == 125
    return done.stderr


def test_nobody_listens_without_a_token_but_on_loopback():
    assert "loopback" in started("--http", "0.0.0.0:0", "--no-token")
    assert "exclude each other" in started("--http", "0", "--no-token", "--token", TOKEN)
    refusal = started("--http", "0", "--token", "short")
    assert "16 printable characters" in refusal
    assert "short;" not in refusal
    assert "give a port" in started("--http", "nonsense")
    assert "as numbers" in started("--http", "example.com:80")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in started("--http", str(taken.getsockname()[1]), "--no-token")


def test_a_token_is_made_up_and_told_once():
    with HttpProcess(token=None) as server:
        told = server._line()
        assert server.post(call("ping"))[0] == 401
        server.token = told.split()[-1]
        assert len(server.token) == 48
        server.hello()
        code, rest = server.close()
        assert code == 0
        assert server.token not in rest


def test_without_a_token_on_loopback_names_are_still_checked():
    with HttpProcess("--no-token", token=None) as server:
        server.token = ""
        server.hello()
        assert server.post(call("ping"), Host="evil.example")[0] == 421
        assert server.post(call("ping"), Origin="http://evil.example")[0] == 403
