"""Calls at once, cancelled, cut off: what runs is ended, what is kept is found again."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tests.mcp.lineclient import LineClient

ENDLESS = "while True: pass"


def until(condition, what, patience=30.0):
    """Look again and again until it is so."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not within {patience} s: {what}"
        time.sleep(0.02)


def busy(sandbox, context="main"):
    return any(each.name == context and each.busy for each in sandbox.contexts.list())


def commands(sandbox):
    return " ".join(each.command for each in sandbox.processes())


@pytest.fixture
def looping(client):
    """A client whose default session runs for ever; the id of the call."""
    client.tool("execute_python", code="kept = 1")
    id = client.begin_tool("execute_python", code=ENDLESS, timeout=600)
    until(lambda: busy(client.sandbox()), "the loop runs")
    return client, id


def test_an_endless_loop_delays_nobody_else(looping):
    client, _ = looping
    assert client.data("execute_python", code="1 + 1", session_id="other")["result"] == "2"
    assert client.data("execute_python", code="1 + 1", context="second")["result"] == "2"
    assert client.data("run_command", command="echo on")["stdout"] == "on\n"
    assert client.tool("list_files")
    client.tool("write_file", path="f", content="x")
    mine = client.data("list_sessions")["sessions"]
    assert any(context["busy"] for item in mine for context in item["contexts"])
    assert client.ask("ping")["result"] == {}


def test_a_cancelled_cell_ends_and_is_not_answered(looping):
    client, id = looping
    sandbox = client.sandbox()
    client.tell("notifications/cancelled", {"requestId": id, "reason": "enough"})
    until(lambda: not busy(sandbox), "the loop ends")
    assert client.data("execute_python", code="kept")["result"] == "1"
    assert not any(message.get("id") == id for message in client._early)


def test_a_cancelled_cell_takes_what_it_started_along(client):
    client.tool("execute_python", code="import subprocess")
    id = client.begin_tool("execute_python", code="subprocess.run(['sleep', '1234'])", timeout=600)
    sandbox = client.sandbox()
    until(lambda: "sleep 1234" in commands(sandbox), "the process runs")
    client.tell("notifications/cancelled", {"requestId": id})
    until(lambda: "sleep 1234" not in commands(sandbox), "the process ends")


def test_a_cancelled_command_ends_with_its_tree(client):
    client.tool("run_command", command="true")
    id = client.begin_tool("run_command", command="sleep 1235 & (sleep 1235; true)", timeout=600)
    sandbox = client.sandbox()
    until(lambda: commands(sandbox).count("sleep 1235") >= 2, "the processes run")
    client.tell("notifications/cancelled", {"requestId": id})
    until(lambda: "sleep 1235" not in commands(sandbox), "the processes end")
    assert client.data("run_command", command="echo on")["stdout"] == "on\n"


def test_a_cell_that_waits_for_its_turn_can_be_cancelled(looping):
    client, first = looping
    second = client.begin_tool("execute_python", code="open('ran', 'w')")
    variable = client.begin_tool("get_repl_context")
    snapshot = client.begin_tool("snapshot", name="never")
    for id in (second, variable, snapshot):
        client.tell("notifications/cancelled", {"requestId": id})
    client.tell("notifications/cancelled", {"requestId": first})
    assert client.data("execute_python", code="import os; os.path.exists('ran')")["result"] == "False"


def test_a_session_that_is_cancelled_in_the_making_is_whole_or_not_there(client):
    for number in range(5):
        name = f"early{number}"
        id = client.begin_tool("execute_python", code=ENDLESS, timeout=600, session_id=name)
        client.tell("notifications/cancelled", {"requestId": id})
        assert client.data("execute_python", code="1 + 1", session_id=name)["result"] == "2"
    assert len(client.data("list_sessions")["sessions"]) == 5


def test_a_cell_that_never_stops_talking_is_cancelled_all_the_same(client):
    client.tool("execute_python", code="1")
    id = client.begin_tool("execute_python", code="while True: print('x' * 1000)", timeout=600)
    sandbox = client.sandbox()
    until(lambda: busy(sandbox), "the loop runs")
    client.tell("notifications/cancelled", {"requestId": id})
    until(lambda: not busy(sandbox), "the loop ends")
    assert client.data("run_command", command="echo on")["stdout"] == "on\n"


def test_only_the_call_that_was_meant_is_cancelled(looping):
    client, id = looping
    for wrong in (str(id), id + 0.5, True, None, [id], {"id": id}, id + 1000, "\ud800"):
        client.tell("notifications/cancelled", {"requestId": wrong})
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [id]})
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    assert client.ask("ping")["result"] == {}
    assert busy(client.sandbox())


def test_an_id_that_is_in_use_is_refused_without_it(looping):
    client, id = looping
    client.begin("tools/call", {"name": "list_sessions"}, id=id)
    refusal = client.answer(None)
    assert refusal["error"]["code"] == -32600
    assert busy(client.sandbox()), "the first one goes on"


def test_lines_of_output_are_progress_where_it_is_asked_for(client):
    code = "import sys\nfor i in range(3): print('line', i)\nprint('oops', file=sys.stderr)"
    done = client.answer(client.begin_tool("execute_python", _meta={"progressToken": "p"}, code=code))
    assert "result" in done
    progress = [note["params"] for note in client.notes]
    assert [note["message"] for note in progress] == ["line 0", "line 1", "line 2", "oops"]
    assert [note["progress"] for note in progress] == [1, 2, 3, 4]
    assert {note["progressToken"] for note in progress} == {"p"}
    client.notes.clear()
    client.answer(client.begin_tool("run_command", _meta={"progressToken": 7}, command="echo a; echo b"))
    assert [note["params"]["message"] for note in client.notes] == ["a", "b"]
    client.notes.clear()
    client.tool("execute_python", code=code)
    assert client.notes == []


def test_a_flood_of_lines_does_not_bury_the_client(client):
    done = client.answer(
        client.begin_tool("execute_python", _meta={"progressToken": 1}, code="for i in range(50000): print(i)")
    )
    assert "result" in done
    assert 1000 <= len(client.notes) < 5000


def test_a_killed_server_leaves_its_sessions():
    with LineClient() as first:
        first.tool("execute_python", code="x = 'kept'\nopen('f', 'w').write('file') and None", session_id="mine")
        id = first.sandbox("mine").id
        first.begin_tool("execute_python", code=ENDLESS, timeout=600, session_id="mine")
        until(lambda: busy(first.sandbox("mine")), "the loop runs")
        first.kill()
        with LineClient(space=first.space) as second:
            assert second.data("list_sessions")["sessions"][0]["sandbox"] == id
            done = second.data("execute_python", code="x + open('f').read()", session_id="mine")
            assert (done["result"], done["new_session"]) == ("'keptfile'", False)


def test_the_end_of_input_ends_the_server_and_what_runs(looping):
    client, _ = looping
    sandbox = client.sandbox()
    began = time.monotonic()
    assert client.end() == 0
    assert time.monotonic() - began < 5
    until(lambda: not busy(sandbox), "the loop ends")
    assert sandbox.run_code("kept").text == "1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server(client, number):
    client.tool("execute_python", code="1")
    client.process.send_signal(number)
    assert client.process.wait(10) == 0


def test_too_many_calls_at_once_are_refused_and_others_served(looping):
    client, first = looping
    ids = [client.begin_tool("execute_python", code="1") for _ in range(80)]
    refused = [client.answer(id) for id in ids[63:]]
    assert {answer["error"]["code"] for answer in refused} == {-32000}
    assert client.ask("ping")["result"] == {}
    client.tell("notifications/cancelled", {"requestId": first})
    served = [client.answer(id) for id in ids[:63]]
    assert all(answer["result"]["structuredContent"]["result"] == "1" for answer in served)


def test_many_sessions_begin_at_once():
    with LineClient() as one, LineClient(space=one.space) as two:
        ids = [
            (client, client.begin_tool("execute_python", code="import os; os.getpid()", session_id="same"))
            for client in (one, two) * 4
        ]
        pids = {client.answer(id)["result"]["structuredContent"]["result"] for client, id in ids}
        assert len(pids) == 1
        assert len(one.data("list_sessions")["sessions"]) == 1


def test_nothing_else_is_ever_on_stdout():
    with LineClient("--with-echo") as client:
        client.tool("run_command", command="echo loud; echo louder >&2")
        sent = [client.begin("tools/call", {"name": "echo", "arguments": {"text": str(i)}}) for i in range(200)]
        for id in sent:
            assert client.answer(id)["result"]["structuredContent"] == {"text": str(sent.index(id))}


def test_a_client_that_stops_reading_harms_only_itself():
    with LineClient() as client:
        client.begin_tool("execute_python", _meta={"progressToken": 1}, code="print('x' * 400 + '\\n' * 900)")
        ids = [client.begin_tool("execute_python", code="'y' * 90000") for _ in range(10)]
        assert all("result" in client.answer(id) for id in ids)


def test_a_slow_writer_of_many_lines_is_served_line_by_line(client):
    line = b'{"jsonrpc":"2.0","id":"slow","method":"ping"}\n'

    def drip():
        for byte in line:
            os.write(client.process.stdin.fileno(), bytes([byte]))

    writer = threading.Thread(target=drip)
    writer.start()
    assert client.answer("slow")["result"] == {}
    writer.join()
