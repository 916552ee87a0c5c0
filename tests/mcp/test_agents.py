"""Agents over MCP: started, watched and ended, by a model that the owner has configured."""

from __future__ import annotations

import pytest
from tests.mcp.lineclient import LineClient
from tests.mcp.test_running import until

from atoll import Sandbox
from atoll.testing.playedmodel import PlayedModel, calls, says, slow

SECRET = "sk-never-to-be-seen"


@pytest.fixture
def configured(monkeypatch, tmp_path):
    """A function that starts a server whose owner has configured a model that plays a script."""
    started = []

    def start(script):
        model = PlayedModel(script)
        model.start()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("ATOLL_MODEL", "played")
        monkeypatch.setenv("ATOLL_BASE_URL", model.url)
        monkeypatch.setenv("ATOLL_API_KEY", SECRET)
        client = LineClient()
        started.extend((client.close, model.stop))
        return client

    before = {info.id for info in Sandbox.list()}
    yield start
    for end in started:
        end()
    for info in Sandbox.list():
        if info.id not in before and info.status != "gone":
            Sandbox.connect(info.id).destroy()


def ended(client, id):
    return client.data("agent_status", id=id)["state"] not in ("waiting", "running")


def test_without_a_model_the_sentence_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATOLL_MODEL", raising=False)
    with LineClient() as client:
        assert "ATOLL_MODEL" in client.refusal("agent_run", task="anything")
        assert client.data("execute_python", code="1")["result"] == "1", "the code tools need no model"


def test_a_run_is_started_watched_and_answers(configured):
    client = configured([calls(("run_code", {"code": "6 * 7"})), says("It is 42.")])
    id = client.data("agent_run", task="What is 6 * 7?", max_iterations=5)["id"]
    until(lambda: ended(client, id), "the run ends", 60)
    shown = client.tool("agent_status", id=id)
    assert shown["structuredContent"]["response"] == "It is 42."
    assert "It is 42." in shown["content"][0]["text"]
    assert SECRET not in str(shown)
    assert client.data("agent_cancel", id=id)["cancelled"] is False
    assert "no" in client.refusal("agent_status", id=id[:-2]).lower(), "the beginning of an id is not enough"
    assert "no" in client.refusal("agent_cancel", id=id[:4]).lower()


def test_a_run_is_cancelled(configured):
    client = configured([slow(says("Too late."), 60)])
    id = client.data("agent_run", task="Take your time.")["id"]
    assert client.data("agent_cancel", id=id)["cancelled"] is True
    until(lambda: ended(client, id), "the run ends", 60)
    assert client.data("agent_status", id=id)["state"] == "cancelled"


def test_nobody_chooses_a_model_by_a_call(configured):
    client = configured([says("Hi.")])
    for name, value in {"model": "other", "base_url": "http://evil.example", "api_key": "x", "source": "/"}.items():
        assert f"`{name}` is not known" in client.refusal("agent_run", task="x", **{name: value})


def test_only_a_whole_id_leads_to_a_run(shared):
    for id in ("", "%", "tr-", "\ud800", "tr-\ud800", "x" * 10000, "tr-0000000000000000"):
        for tool in ("agent_status", "agent_cancel"):
            refusal = shared.refusal(tool, id=id)
            assert "here is no" in refusal
            assert "Several" not in refusal, "it does not tell which there are"
