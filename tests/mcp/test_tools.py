"""Every tool, over lines."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import time

import pytest
from tests.mcp.lineclient import LineClient, sweep

from atoll import Sandbox, Snapshots
from atoll.mcp.catalog import TOOLS
from atoll.mcp.pictures import kind_of
from atoll.mcp.rich import blocks_of
from atoll.mcp.sessiontools import moment
from atoll.testing import wheels
from atoll.types import Result

NAMES = [
    "execute_python",
    "run_command",
    "install_packages",
    "get_repl_context",
    "set_repl_context",
    "clear_repl_context",
    "list_sessions",
    "destroy_session",
    "read_file",
    "write_file",
    "list_files",
    "snapshot",
    "fork",
    "rollback",
    "diff",
    "apply",
    "agent_run",
    "agent_status",
    "agent_cancel",
]
# A signature, and the beginning of a header that tells 16 by 16 points.
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10"


def test_the_tools_are_these_and_described(shared):
    tools = shared.ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == list(NAMES) == list(TOOLS)
    for tool in tools:
        assert set(tool) == {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}
        assert set(tool["annotations"]) == {
            "title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
        }  # fmt: skip
        assert not (tool["annotations"]["readOnlyHint"] and tool["annotations"]["destructiveHint"])


def test_a_cell_keeps_its_variables_for_the_next(shared):
    first = shared.tool("execute_python", code="x = 41\nprint('said')\nx + 1", session_id="cells")
    assert first["content"] == [{"type": "text", "text": "said\n42"}]
    assert first["structuredContent"]["result"] == "42"
    assert first["structuredContent"]["new_session"] is True
    second = shared.data("execute_python", code="x", session_id="cells")
    assert (second["result"], second["new_session"], second["count"]) == ("41", False, 2)
    other = shared.data("execute_python", code="x", session_id="cells", context="other")
    assert other["error"]["name"] == "NameError"
    assert other["success"] is False


@pytest.fixture
def index(tmp_path, monkeypatch):
    wheels.use_only(tmp_path, monkeypatch)
    wheels.make(tmp_path, "for-models", {"for_models.py": "A = 42\n"})


def test_packages_are_installed_without_a_network(index):
    with LineClient() as client:
        assert "no network" in client.hello["instructions"]
        assert "install_packages" in client.hello["instructions"]
        done = client.tool("install_packages", packages=["for-models"], session_id="packs")
        assert done["structuredContent"] == {"session_id": "packs", "packages": ["for-models"], "new_session": True}
        answer = client.data("execute_python", code="import for_models; for_models.A", session_id="packs")
        assert answer["result"] == "42"
        absent = client.refusal("install_packages", packages=["absent"], session_id="packs")
        assert "No matching distribution found for absent" in absent
        for hostile in ("x @ https://169.254.169.254/latest", "--index-url=http://127.0.0.1", "/etc"):
            client.refusal("install_packages", packages=[hostile], session_id="packs")


def test_an_owner_may_take_the_installer_away():
    with LineClient("--no-install") as client:
        assert "install_packages" not in [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
        assert "install_packages" not in client.hello["instructions"]
        assert "error" in client.ask("tools/call", {"name": "install_packages", "arguments": {"packages": ["x"]}})


def test_code_that_raises_is_data_with_its_traceback(shared):
    done = shared.tool("execute_python", code="import sys\nprint('x', file=sys.stderr)\n1 / 0", session_id="raises")
    assert "ZeroDivisionError" in done["content"][0]["text"]
    assert "[stderr]\nx" in done["content"][0]["text"]
    assert done["structuredContent"]["error"]["name"] == "ZeroDivisionError"


def test_a_timeout_says_whether_variables_are_lost(shared):
    shared.tool("execute_python", code="kept = 1", session_id="late")
    late = shared.tool("execute_python", code="while True: pass", session_id="late", timeout=0.3)
    assert late["structuredContent"]["timed_out"] is True
    assert late["structuredContent"]["state_lost"] is False
    assert "variables of the session are kept" in late["content"][0]["text"]
    assert shared.data("execute_python", code="kept", session_id="late")["result"] == "1"
    stubborn = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nwhile True: pass"
    gone = shared.tool("execute_python", code=stubborn, session_id="late", timeout=0.3)
    assert gone["structuredContent"]["state_lost"] is True
    assert "variables are lost" in gone["content"][0]["text"]


def test_output_that_is_too_long_is_cut_and_told():
    with LineClient("--max-output", "1000") as client:
        done = client.tool("execute_python", code="print('a' * 5000 + 'end')")
        assert done["structuredContent"]["truncated"] is True
        assert "Not all of the output" in done["content"][0]["text"]
        assert done["structuredContent"]["stdout"].endswith("end\n")
        assert len(done["structuredContent"]["stdout"]) < 1100
        whole = client.data("execute_python", code="print('a' * 500)")
        assert whole["truncated"] is False
        command = client.data("run_command", command="seq 1 1000; echo fin")
        assert command["truncated"] is True
        assert command["stdout"].endswith("fin\n")


def test_pictures_come_as_images(shared):
    png = base64.b64encode(PNG + b"x" * 20).decode()
    code = f"class P:\n def _repr_mimebundle_(s, **k): return {{'image/png': '{png}', 'text/plain': 'P'}}\nP()"
    content = shared.tool("execute_python", code=code, session_id="pictures")["content"]
    assert {"type": "image", "data": png, "mimeType": "image/png"} in content
    html = "class H:\n    def _repr_html_(self):\n        return '<b>1</b>'\nH()"
    content = shared.tool("execute_python", code=html, session_id="pictures")["content"]
    (resource,) = [block["resource"] for block in content if block["type"] == "resource"]
    assert (resource["mimeType"], resource["text"]) == ("text/html", "<b>1</b>")
    shared.tool("write_file", path="p.png", content=png, encoding="base64", session_id="pictures")
    (image,) = shared.tool("read_file", path="p.png", session_id="pictures")["content"]
    assert image == {"type": "image", "data": png, "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("content", "mime"),
    [
        (PNG + b"x", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a\1\0\1\0x", "image/gif"),
        (b"GIF87a\1\0\1\0x", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8L", "image/webp"),
        (PNG[:8], None),
        (PNG[:16] + bytes(8) + b"x", None),
        (b"GIF8 is text", None),
        (b"GIF89a\0\0\1\0x", None),
        (b"RIFF\0\0\0\0WEBPtext", None),
        (b"", None),
    ],
)
def test_a_picture_is_known_by_its_beginning(content, mime):
    assert kind_of(content) == mime


def test_what_only_claims_to_be_a_picture_is_text(shared):
    for claimed in (base64.b64encode(b"<html>").decode(), base64.b64encode(PNG[:8]).decode()):
        code = f"class P:\n def _repr_mimebundle_(s, **k): return {{'image/png': {claimed!r}, 'text/plain': 'P'}}\nP()"
        content = shared.tool("execute_python", code=code, session_id="pictures")["content"]
        assert {block["type"] for block in content} == {"text"}
        assert "is no picture" in content[-1]["text"]
    for claimed in ("!!!not base64", "AP8", ""):  # which only a guest that was tampered with sends
        (block,), cut = blocks_of((Result({"image/png": claimed, "text/plain": "P"}, True),), 1000)
        assert ("is no picture" in block["text"], cut) == (True, False)
    gif = base64.b64encode(b"GIF89a\1\0\1\0x").decode()
    code = f"class P:\n def _repr_mimebundle_(s, **k): return {{'image/png': {gif!r}}}\nP()"
    content = shared.tool("execute_python", code=code, session_id="pictures")["content"]
    assert content[-1] == {"type": "image", "data": gif, "mimeType": "image/gif"}, "what it is, not what it claims"
    shared.tool("write_file", path="g", content="GIF8 is text", session_id="pictures")
    assert shared.data("read_file", path="g", session_id="pictures")["content"] == "GIF8 is text"


def test_an_answer_holds_what_the_owner_allows_of_everything():
    with LineClient("--max-output", "2000") as client:
        bundle = f"{{'image/png': base64.b64encode({PNG!r} + b'x' * SIZE).decode(), 'text/plain': 'P'}}"
        code = f"import base64\nclass P:\n def _repr_mimebundle_(s, **k): return {bundle}\nP()"
        done = client.tool("execute_python", code=code.replace("SIZE", "20000"))
        assert (done["content"][-1]["type"], done["structuredContent"]["truncated"]) == ("image", False)
        done = client.tool("execute_python", code=code.replace("SIZE", "100000"))
        assert ({block["type"] for block in done["content"]}, done["structuredContent"]["truncated"]) == (
            {"text"},
            True,
        )
        client.tool("execute_python", code="globals().update({f'v{i}': 'x' * 900 for i in range(50)})")
        listed = client.tool("get_repl_context")
        assert listed["structuredContent"]["truncated"] is True
        assert len(str(listed["structuredContent"]["variables"])) < 2500
        assert 5 < len(listed["structuredContent"]["variables"]) < 30
        assert "more are left out" in listed["content"][0]["text"]
        client.tool(
            "run_command", command="mkdir d; cd d; for i in $(seq 100 130); do touch a-rather-long-name-$i; done"
        )
        listed = client.data("list_files", path="d")
        assert listed["truncated"] is True
        assert 5 < len(listed["entries"]) < 20
        assert len(str(listed)) < 2500
        client.tool("clear_repl_context")
        client.tool("run_command", command="rm -r d; touch a b")
        assert client.data("list_files")["truncated"] is False
        assert client.data("get_repl_context")["truncated"] is False


def test_a_diff_of_many_files_holds_what_the_owner_allows(tmp_path):
    with LineClient("--max-output", "2000", "--allow-source", str(tmp_path), "--preset", "development") as client:
        client.tool("run_command", command="for i in $(seq 100 200); do echo 1 > f$i; done", source=str(tmp_path))
        some = client.tool("diff")
        assert some["structuredContent"]["truncated"] is True
        assert 3 < len(some["structuredContent"]["changes"]) < 25
        assert "more changes are left out" in some["content"][0]["text"]
        assert client.data("diff", paths=["f100", "f101"])["truncated"] is False


def test_times_that_no_calendar_has_are_told_as_well_as_can_be(shared):
    code = "import os\nopen('late', 'w').close()\nos.utime('late', (2**40, 2**40))"
    shared.tool("execute_python", code=code, session_id="times")
    entries = shared.data("list_files", session_id="times")["entries"]
    assert [entry["name"] for entry in entries] == ["late"]
    assert moment(1e300) == moment(float("inf")) == "9999-12-31T23:59:59+00:00"
    assert moment(-1e300) == moment(float("nan")) == "0001-01-01T00:00:00+00:00"
    assert moment(0.0) == "1970-01-01T00:00:00+00:00"


def test_commands_have_exit_codes_and_output(shared):
    done = shared.data("run_command", command="cat; echo err >&2; exit 3", stdin="in", session_id="commands")
    assert (done["stdout"], done["stderr"], done["exit_code"], done["success"]) == ("in", "err\n", 3, False)
    late = shared.tool("run_command", command="sleep 60", session_id="commands", timeout=0.2)
    assert late["structuredContent"]["timed_out"] is True
    assert "ran out of time" in late["content"][0]["text"]
    assert done["hint"] is None
    assert late["structuredContent"]["hint"] == "A larger `timeout` gives it more time."
    assert "[A larger `timeout` " in late["content"][0]["text"]
    there = shared.data("run_command", command="pwd", session_id="commands", workdir="/tmp")
    assert there["stdout"] == "/tmp\n"


OFFLINE = "This session has no network, and downloads fail."


def test_a_failed_command_is_explained_by_what_a_model_can_do_about_it(shared):
    offline = shared.tool("run_command", command="echo Could not resolve host: x >&2; exit 6", session_id="hints")
    assert offline["structuredContent"]["hint"] == f"{OFFLINE} install_packages adds Python packages all the same."
    assert f"[{OFFLINE} " in offline["content"][0]["text"]
    greedy = "python3 -c 'x = [bytearray(b\"1\" * 10**6) for _ in range(10**5)]'"
    large = shared.tool("run_command", command=greedy, session_id="hints")
    assert re.match(r"It was killed for its memory: sessions have \d+[MG], ", large["structuredContent"]["hint"])
    assert "--" not in large["content"][0]["text"]


def test_no_tool_is_recommended_that_is_not_there(tmp_path):
    with LineClient("--no-install") as client:
        done = client.data("run_command", command="echo Could not resolve host: x >&2; exit 6")
        assert done["hint"] == OFFLINE


def test_variables_are_set_seen_and_really_cleared(shared):
    shared.tool("set_repl_context", name="a", value={"deep": [1, None]}, session_id="vars")
    shared.tool("set_repl_context", variables={"b": 2, "c": "three"}, session_id="vars")
    assert shared.data("execute_python", code="a['deep'][0] + b", session_id="vars")["result"] == "3"
    listed = shared.data("get_repl_context", session_id="vars")["variables"]
    assert {item["name"] for item in listed} == {"a", "b", "c"}
    assert shared.data("get_repl_context", session_id="vars", name="a")["value"] == {"deep": [1, None]}
    shared.tool("clear_repl_context", session_id="vars", names=["a"])
    assert {item["name"] for item in shared.data("get_repl_context", session_id="vars")["variables"]} == {"b", "c"}
    shared.tool("execute_python", code="import json as hidden\n_private = 1", session_id="vars")
    shared.tool("clear_repl_context", session_id="vars")
    assert shared.data("get_repl_context", session_id="vars")["variables"] == []
    after = shared.data("execute_python", code="'_private' in globals() or 'hidden' in globals()", session_id="vars")
    assert after["result"] == "False"
    assert after["state_lost"] is False, "what was cleared on purpose is not lost"


def test_a_value_that_is_no_json_comes_as_what_json_has(shared):
    shared.tool("execute_python", code="n = float('nan')\nhalf = '\\ud800'\nraw = b'\\x00\\xff'", session_id="odd")
    assert shared.data("get_repl_context", session_id="odd", name="n")["value"] == "nan"
    assert shared.data("get_repl_context", session_id="odd", name="raw")["value"] == {"base64": "AP8="}
    said = shared.tool("execute_python", code="half", session_id="odd")
    said["content"][0]["text"].encode("utf-8")


def test_files_are_written_read_and_listed(shared):
    shared.tool("write_file", path="dir/a.txt", content="grüße\n", session_id="files")
    shared.tool("write_file", path="dir/a.txt", content="more", append=True, session_id="files")
    assert shared.data("read_file", path="dir/a.txt", session_id="files")["content"] == "grüße\nmore"
    part = shared.data("read_file", path="dir/a.txt", offset=2, size=1, session_id="files")
    assert part["encoding"] == "utf-8", "a part that ends within a character ends before it"
    shared.tool("write_file", path="bin", content="AP8=", encoding="base64", session_id="files")
    assert shared.data("read_file", path="bin", session_id="files")["encoding"] == "base64"
    listed = shared.data("list_files", path=".", recursive=True, session_id="files")["entries"]
    assert {entry["path"] for entry in listed} == {"/workspace/bin", "/workspace/dir", "/workspace/dir/a.txt"}
    assert "no such file" in shared.refusal("read_file", path="none", session_id="files").lower()
    assert "base64" in shared.refusal("write_file", path="x", content="?", encoding="base64", session_id="files")


def test_no_path_leads_to_the_host(shared, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host")
    assert "no such file" in shared.refusal("read_file", path=str(secret)).lower()
    climbed = "../" * 20 + str(secret)
    shared.refusal("read_file", path=climbed, session_id="default")
    shared.refusal("read_file", path="a\0b", session_id="default")
    shared.tool("run_command", command=f"ln -s {secret} link", session_id="default")
    shared.refusal("read_file", path="link", session_id="default")
    shared.tool("write_file", path="plain", content="inside", session_id="default")
    assert shared.data("read_file", path="plain", session_id="default")["content"] == "inside"


def test_a_snapshot_is_rolled_back_to_and_forked_from(shared):
    shared.tool("execute_python", code="x = 1\nopen('f', 'w').write('old') and None", session_id="past")
    assert shared.data("snapshot", name="before", session_id="past")["name"] == "before"
    shared.tool("execute_python", code="x = 2\nopen('f', 'w').write('new') and None", session_id="past")
    assert shared.data("fork", session_id="past", new_session_id="twin")["session_id"] == "twin"
    shared.tool("fork", session_id="past", new_session_id="older", snapshot="before")
    shared.tool("rollback", session_id="past", name="before")
    values = {
        name: shared.data("execute_python", code="(x, open('f').read())", session_id=name)["result"]
        for name in ("past", "twin", "older")
    }
    assert values == {"past": "(1, 'old')", "twin": "(2, 'new')", "older": "(1, 'old')"}
    assert "There is a session 'twin' already" in shared.refusal("fork", session_id="past", new_session_id="twin")
    assert "It has before" in shared.refusal("rollback", session_id="past", name="never")
    assert "before" in shared.refusal("snapshot", session_id="past", name="before")
    shared.tool("snapshot", name="before", session_id="twin")  # names are a session's own
    past = shared.sandbox("past").id
    assert Snapshots().list(sandbox=past)
    shared.tool("destroy_session", session_id="past")
    assert not Snapshots().list(sandbox=past)


def test_sessions_are_listed_and_destroyed(shared):
    shared.tool("execute_python", code="1", session_id="listed")
    mine = {item["session_id"]: item for item in shared.data("list_sessions")["sessions"]}["listed"]
    assert mine["sandbox"] == shared.sandbox("listed").id
    assert mine["environment"] == "jail"
    assert mine["contexts"][0]["cells"] == 1
    assert shared.data("destroy_session", session_id="listed")["destroyed"] is True
    assert shared.data("destroy_session", session_id="listed")["destroyed"] is False
    assert shared.sandbox("listed") is None
    assert "There is no session 'listed'" in shared.refusal("read_file", path="x", session_id="listed")


def test_a_session_that_has_ended_is_told_of_and_made_anew(shared):
    shared.tool("execute_python", code="x = 1", session_id="ended")
    shared.sandbox("ended").destroy()
    assert "gone" in shared.refusal("execute_python", code="x", session_id="ended")
    again = shared.data("execute_python", code="'x' in globals()", session_id="ended")
    assert (again["result"], again["new_session"]) == ("False", True)


def test_a_session_that_was_stopped_goes_on(shared):
    shared.tool("execute_python", code="x = 5", session_id="stopped")
    shared.sandbox("stopped").stop()
    assert "stopped" in shared.refusal("execute_python", code="x", session_id="stopped")
    assert shared.data("execute_python", code="x", session_id="stopped")["result"] == "5"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a b", "-x", "x" * 65, "a\0", "a\n", "ä", "\ud800", "*", "%", "_"]
)
def test_a_hostile_session_name_is_refused(shared, name):
    for tool in ("execute_python", "destroy_session", "fork", "list_files"):
        more = {"code": "1"} if tool == "execute_python" else {}
        assert "session_id" in shared.refusal(tool, session_id=name, **more)
    assert "session_id" in shared.refusal("fork", new_session_id=name)


def test_sandboxes_of_others_are_out_of_reach(shared):
    with Sandbox.create(labels={"task": "theirs"}) as theirs:
        assert theirs.id not in {item["sandbox"] for item in shared.data("list_sessions")["sessions"]}
        assert shared.data("destroy_session", session_id=theirs.id)["destroyed"] is False
        assert theirs.run("echo alive").stdout == "alive\n"
    with LineClient() as other:
        other.tool("execute_python", code="x = 1", session_id="elsewhere")
        assert "There is no session" in shared.refusal("get_repl_context", session_id="elsewhere")


def test_wrong_arguments_get_a_sentence(shared):
    assert "`codes` is not known: did you mean 'code'?" in shared.refusal("execute_python", code="1", codes="1")
    assert "The argument `code` is missing: give a string" in shared.refusal("execute_python")
    assert "The argument `code` must be a string, not 5" in shared.refusal("execute_python", code=5)
    assert 'must be one of "quick"' in shared.refusal("execute_python", code="1", profile="slow")
    assert "timeout is 0" in shared.refusal("execute_python", code="1", timeout=0)
    assert "`timeout` must be a number, not NaN" in shared.refusal("execute_python", code="1", timeout=float("nan"))
    assert "timeout is 1000000" in shared.refusal("execute_python", code="1", timeout=10**400)
    assert "timeout is -1000000" in shared.refusal("run_command", command="ls", timeout=-(10**400))
    assert "`timeout` must be a number, not Infinity" in shared.refusal(
        "execute_python", code="1", timeout=float("inf")
    )
    assert "`timeout` must be a number, not true" in shared.refusal("execute_python", code="1", timeout=True)
    assert "`names[0]` must be a string, not 1" in shared.refusal("clear_repl_context", names=[1])
    assert 'not "inprocess"' in shared.refusal("execute_python", code="1", environment="inprocess")


def test_the_environment_of_a_session_stays(shared):
    shared.tool("execute_python", code="1", session_id="walled", environment="jail")
    shared.tool("execute_python", code="1", session_id="walled", environment="jail")
    refusal = shared.refusal("execute_python", code="1", session_id="walled", environment="gvisor")
    assert "with the environment jail" in refusal


def test_a_source_is_the_owners_to_allow(shared, tmp_path):
    (tmp_path / "app.py").write_text("print('hi')\n")
    assert "--allow-source" in shared.refusal("execute_python", code="1", session_id="s", source=str(tmp_path))
    assert "made over no directory" in shared.refusal("diff")
    inner, outside = tmp_path / "in", tmp_path / "out"
    for directory in (inner, outside):
        directory.mkdir()
        (directory / "app.py").write_text("print('hi')\n")
    (inner / "escape").symlink_to(outside)
    with LineClient("--allow-source", str(inner), "--preset", "development") as client:
        for path in (outside, inner / "escape", inner / ".." / "out", str(inner) + "x", "/"):
            assert "this server allows" in client.refusal("run_command", command="ls", source=str(path))
        client.tool("run_command", command="sed -i s/hi/hello/ app.py", source=str(inner))
        assert "+print('hello')" in client.data("diff")["changes"][0]["diff"]
        refusal = client.refusal("apply")
        assert f"atoll apply {client.sandbox().id}" in refusal
        assert "--allow-apply" in refusal
        assert (inner / "app.py").read_text() == "print('hi')\n"
    with LineClient("--allow-source", str(inner), "--preset", "development", "--allow-apply") as client:
        client.tool("run_command", command="sed -i s/hi/hello/ app.py", source=str(inner))
        assert client.data("apply")["applied"] == ["app.py"]
        assert (inner / "app.py").read_text() == "print('hello')\n"
        assert "this server allows" in client.refusal("run_command", command="ls", source=str(outside), session_id="o")


def test_a_wider_session_of_an_earlier_server_is_not_taken_over():
    with LineClient("--network", "all") as wide:
        wide.tool("execute_python", code="1")
        narrow = LineClient(space=wide.space)
        try:
            assert "network 'all'" in narrow.refusal("execute_python", code="1")
            narrow.tool("destroy_session", session_id="default")
            narrow.tool("execute_python", code="1")
        finally:
            narrow.close(destroy=False)


def test_there_are_only_so_many_sessions():
    with LineClient("--max-sessions", "2") as client:
        for name in ("a", "b", "a"):
            client.tool("execute_python", code="1", session_id=name)
        assert "2 sessions already" in client.refusal("execute_python", code="1", session_id="c")
        assert "2 sessions already" in client.refusal("fork", session_id="a")
        client.tool("destroy_session", session_id="b")
        client.tool("fork", session_id="a", new_session_id="c")


def test_a_file_of_escapes_is_written_as_it_is(shared):
    text = "half = '\\ud800'\n\U0001f600 \\ud83d"
    shared.tool("write_file", path="escapes", content=text, session_id="files")
    assert shared.data("read_file", path="escapes", session_id="files")["content"] == text
    assert "surrogate" in shared.refusal("write_file", path="x", content="\ud800", session_id="files")


def test_a_number_without_end_is_told_in_another_way(shared):
    shared.tool("execute_python", code="n = 1 << 20000", session_id="odd")
    answer = shared.answer(shared.begin_tool("get_repl_context", name="n", session_id="odd"))
    assert "result" in answer
    assert "context is ''" in shared.refusal("execute_python", code="1", context="")
    assert "context is" in shared.refusal("execute_python", code="1", context="x" * 100)


def test_options_are_checked_before_anything_is_served():
    def failure(*options):
        command = [sys.executable, "-m", "atoll", "mcp-serve", *options]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        assert done.stdout == ""
        assert done.returncode == 125
        return done.stderr

    assert "--token is for --http" in failure("--token", "x")
    assert "memory" in failure("--memory", "lots")
    assert "no directory" in failure("--allow-source", "/nowhere")
    assert "--lifetime" in failure("--lifetime", "ages")
    assert "network" in failure("--network", "some")


def test_a_use_renews_the_lifetime():
    with LineClient("--lifetime", "60") as client:
        client.tool("execute_python", code="1")
        first = Sandbox.list({"atoll.mcp.space": client.space})[0].expires
        assert first <= time.time() + 61
        client.close(destroy=False)
        with LineClient("--lifetime", "2h", space=client.space) as later:
            later.tool("execute_python", code="1")
            assert Sandbox.list({"atoll.mcp.space": client.space})[0].expires > first + 3600
    sweep(client.space)
