"""The real LiteLLM behind the same interface. Its import takes seconds, so all of it is in one file."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import logging
import os
import socket
import subprocess
import sys

import anyio
import pytest
from tests.playedmodel import PlayedModel, calls, fails, limited, says, slow

from atoll.errors import ModelError
from atoll.models import ToolCall, Usage, lite, load, retrying

# No socket may be opened: the import would fetch its table of prices.
IMPORT = """
import os, socket, sys
def refuse(*args): raise AssertionError("it opened a socket")
socket.socket.connect = socket.getaddrinfo = refuse
from atoll.models import lite
lite.load_litellm("x/y")
print(os.environ.get("FROM_A_FILE"), sys.modules["litellm"].telemetry)
"""
HI = [{"role": "user", "content": "hi"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run_code",
            "description": "Run it.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
    }
]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(retrying, "pause", lambda failed: 0.001)


@pytest.fixture(scope="module", autouse=True)
def import_told(tmp_path_factory):
    """What the import did: to the environment, to telemetry, on stderr. It is done once, since it takes seconds."""
    here = tmp_path_factory.mktemp("project")
    (here / ".env").write_text("FROM_A_FILE=1\n")
    if "litellm" in sys.modules:
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, cwd=here)
        return (*done.stdout.split(), done.stderr)
    printed, complained = io.StringIO(), io.StringIO()
    quiet = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained)
    with contextlib.chdir(here), quiet[0], quiet[1], pytest.MonkeyPatch.context() as patch:
        # As they are: so that they are put back when the import has ended.
        patch.setattr(socket.socket, "connect", socket.socket.connect)
        patch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
        exec(IMPORT, {})
    return (*printed.getvalue().split(), complained.getvalue())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_asks_and_answers_as_the_built_in_client_does(backend):
    script = [calls(("run_code", {"code": "1"}), usage=(10, 2, 4)), [limited(0), fails(500), says("done")]]
    told = []

    async def work(model):
        first = await model.ask(HI, tools=TOOLS, max_tokens=9)
        messages = [*HI, {"role": "assistant", "content": "x"}, {"role": "user", "content": "go on"}]
        return first, await model.ask(messages, on_retry=told.append)

    with PlayedModel(script, key="sk-1") as server:
        model = load("litellm/openai/gpt-4o-mini", base_url=server.url, api_key="sk-1")
        first, second = anyio.run(work, model, backend=backend)
        anyio.run(model.aclose)
    assert first.tool_calls == (ToolCall("call_0_0", "run_code", '{"code": "1"}'),)
    assert (first.usage, first.finish) == (Usage(10, 2, 4), "tool_calls")
    assert first.cost > 0
    assert (second.text, second.attempts, len(told)) == ("done", 3, 2)
    assert len(server.requests) == 4, "LiteLLM's own retries are off"
    assert server.requests[0].body["tools"] == TOOLS
    assert "sk-1" not in repr(model) + str(vars(model))


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (fails(401, "Incorrect key sk-given."), 401, r"AuthenticationError.*Incorrect key \*\*\*.*Give api_key"),
        (fails(400, "bad tool"), 400, "BadRequestError.*bad tool"),
        (
            fails(400, "This model's maximum context length is 10 tokens.", code="context_length_exceeded"),
            400,
            "Send less",
        ),
        (fails(404, "no such model"), 404, "NotFoundError"),
    ],
)
def test_its_errors_are_ours(fault, status, words):
    with PlayedModel([fault]) as server:
        model = load("litellm/openai/m", base_url=server.url, api_key="sk-given")
        with pytest.raises(ModelError, match=words) as wrong:
            anyio.run(model.ask, HI)
        assert (wrong.value.status, wrong.value.retryable) == (status, False)
        assert "sk-given" not in str(wrong.value)
        assert len(server.requests) == 1


def test_time_is_bounded():
    with PlayedModel([slow(says("x"), 60)]) as server:
        model = load("litellm/openai/m", base_url=server.url)
        with pytest.raises(ModelError) as wrong:
            anyio.run(lambda: model.ask(HI, timeout=0.5))
        assert wrong.value.retryable


def test_a_provider_s_key_does_not_go_to_another_url(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    with PlayedModel([says("x")]) as server:
        anyio.run(load("litellm/openai/m", base_url=server.url).ask, HI)
        anyio.run(load("litellm/openai/m", base_url=server.url, api_key="sk-given").ask, HI)
    assert [request.authorization for request in server.requests] == ["Bearer none", "Bearer sk-given"]


def test_a_prefix_that_is_not_built_in_goes_there_and_says_what_it_lacks():
    with pytest.raises(ModelError, match=r"anthropic.*Give api_key.*\$ANTHROPIC_API_KEY") as wrong:
        anyio.run(load("anthropic/claude-sonnet-4-5").ask, HI)
    assert (wrong.value.status, wrong.value.retryable) == (401, False)
    with pytest.raises(ModelError, match="LiteLLM knows no such provider"):
        anyio.run(load("nobody/m").ask, HI)


def test_keys_of_the_environment_are_not_in_what_it_says(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    assert lite.without_keys("wrong key sk-ant-secret!", None) == "wrong key ***!"


def test_without_it_the_hint_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(
        ModelError, match=r"'opnai/gpt-4o' needs LiteLLM.*there are: openai,.*pip install 'atoll\[litellm\]'"
    ):
        load("opnai/gpt-4o")


@pytest.mark.parametrize("version", sorted(lite.MALICIOUS))
def test_a_malicious_release_is_not_imported(tmp_path, version):
    """A package of that version, which would tell on stderr that it was imported."""
    (tmp_path / "litellm").mkdir()
    (tmp_path / "litellm" / "__init__.py").write_text("import sys; print('IMPORTED', file=sys.stderr)\n")
    (tmp_path / f"litellm-{version}.dist-info").mkdir()
    metadata = tmp_path / f"litellm-{version}.dist-info" / "METADATA"
    metadata.write_text(f"Metadata-Version: 2.1\nName: litellm\nVersion: {version}\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from atoll.errors import ModelError
from atoll.models import load, lite
for call in (lambda: load("anthropic/x"), lambda: lite.load_litellm("anthropic/x")):
    try:
        call()
    except ModelError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count(f"litellm {version} is malicious") == 2
    assert "IMPORTED" not in done.stderr
    # The control: with another version it is imported.
    metadata.write_text("Metadata-Version: 2.1\nName: litellm\nVersion: 1.82.6\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "IMPORTED" in done.stderr


def test_it_reads_no_env_file_calls_nobody_and_is_quiet(import_told):
    assert import_told == ("None", "False", "")


def test_its_log_is_quiet():
    lite.load_litellm("x/y")
    assert not logging.getLogger("LiteLLM").isEnabledFor(logging.ERROR)
