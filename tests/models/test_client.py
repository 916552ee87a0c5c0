"""The built-in client against a played model: what it sends, what it survives, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import anyio
import anyio.to_thread
import pytest
from tests.playedmodel import (
    PlayedModel,
    calls,
    cut_off,
    drops,
    fails,
    huge,
    limited,
    malformed,
    raw,
    redirects,
    refuses,
    says,
    slow,
    streams,
)

from atoll.errors import InvalidInput, ModelError
from atoll.http.address import Address
from atoll.http.client import Client, Lost, Ticket
from atoll.models import Usage, load, retrying
from atoll.models.threads import THREAD
from atoll.testing.waiting import eventually

HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retrying, "pause", lambda failed: 0.001 * failed)


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    def run(work):
        return anyio.run(work, backend=request.param)

    return run


def asked(script, run=None, *, messages=HI, name="m", **options):
    """The reply of a model to a script, and the server."""
    load_options = {key: options.pop(key) for key in ("api_key", "retries") if key in options}
    with PlayedModel(script) as server:
        model = load(name, base_url=server.url, **load_options)

        async def work():
            try:
                return await model.ask(messages, **options)
            finally:
                await model.aclose()

        return (run or anyio.run)(work), server


def test_a_question_and_its_answer(run):
    reply, server = asked([says("hello", usage=(5, 2))], run, api_key="sk-1", tools=TOOLS, max_tokens=9)
    assert (reply.text, reply.usage, reply.attempts, reply.cost) == ("hello", Usage(5, 2), 1, None)
    (request,) = server.requests
    assert request.body == {"model": "m", "messages": HI, "tools": TOOLS, "max_tokens": 9}
    assert (request.path, request.authorization) == ("/v1/chat/completions", "Bearer sk-1")


def test_without_a_key_none_is_sent_and_without_tools_none_are_named():
    _, server = asked([says("x")])
    assert server.requests[0].authorization is None
    assert set(server.requests[0].body) == {"model", "messages"}


def test_text_of_any_kind_arrives_as_it_is():
    text = 'a"\\\n\x00\N{GRINNING FACE}é'
    reply, server = asked(
        lambda request: says(request["messages"][0]["content"]), messages=[{"role": "user", "content": text}]
    )
    assert reply.text == text
    _, server = asked([says("x")], messages=[{"role": "user", "content": "half \ud800"}])
    assert server.requests[0].body["messages"][0]["content"] == "half ?"


def test_connections_are_kept(run):
    with PlayedModel(lambda request: says("x")) as server:
        model = load("m", base_url=server.url)

        async def work():
            for _ in range(5):
                await model.ask(HI)
            await model.aclose()

        run(work)
        run(work)  # another event loop
        assert [request.connection for request in server.requests] == [1] * 5 + [2] * 5


def test_who_is_cancelled_before_it_begins_closes_the_connection_that_it_would_have_used():
    with PlayedModel(lambda request: says("x")) as server:
        client = Client(Address("http", "127.0.0.1", int(server.url.split(":")[2].split("/")[0]), "/v1"))
        client.post("/v1/models", {}, b"{}", Ticket(), 5)
        [(_, kept)] = client._idle
        assert kept.socket.fileno() >= 0, "the control: it is kept"
        cancelled = Ticket()
        cancelled.cancel()
        with pytest.raises(Lost, match="cancelled"):
            client.post("/v1/models", {}, b"{}", cancelled, 5)
        assert kept.socket.fileno() == -1
        assert client._idle == []


def test_a_kept_connection_that_the_server_has_closed_is_no_failure():
    with PlayedModel(lambda request: says("x")) as server:
        model = load("m", base_url=server.url, retries=0)
        anyio.run(model.ask, HI)
        port = server.url
    assert port
    with PlayedModel(lambda request: says("y"), port=int(server.url.rsplit(":", 1)[1].split("/")[0])):
        assert anyio.run(model.ask, HI).text == "y"
    anyio.run(model.aclose)


GOOD = says("in the end")


@pytest.mark.parametrize(
    "fault",
    [
        limited(0),
        limited("Thu, 01 Jan 1970 00:00:00 GMT"),
        limited("nonsense"),
        fails(500),
        fails(503),
        fails(529),
        fails(408),
        fails(409),
        cut_off(says("x"), 0),
        cut_off(says("x"), 30),
        malformed(),
        malformed(""),
        drops(),
        raw({"choices": []}),
        raw({"error": {"code": 502, "message": "upstream"}}),
    ],
    ids=str,
)
def test_what_may_pass_is_asked_again(fault):
    told = []
    reply, server = asked([[fault, fault, GOOD]], on_retry=told.append)
    assert (reply.text, reply.attempts, len(server.requests)) == ("in the end", 3, 3)
    assert len(told) == 2
    assert all("Asking again" in sentence for sentence in told)
    assert [request.body for request in server.requests] == [server.requests[0].body] * 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (fails(400, "bad tool"), "refused the request.*bad tool"),
        (fails(401, "sk-1 is wrong"), r"refused the key.*\*\*\* is wrong"),
        (fails(403), "refused the key"),
        (fails(404), "has no model"),
        (fails(429, "pay", code="insufficient_quota"), "no credit left"),
        (fails(400, "This model's maximum context length is 10 tokens"), "too long for m"),
        (redirects("https://evil.example/v1"), "redirects to https://evil.example/v1, and a key must not follow"),
        (streams("x"), "is a stream, which was not asked for"),
        (malformed("<html>hello"), "web page"),
        (raw([]), "is a list"),
        (raw({"choices": "x"}), "list of choices"),
        ({"text": "x", "headers": {"Content-Encoding": "br"}}, "in the encoding 'br'"),
        ({"text": "x", "headers": {"Content-Length": str(1 << 40)}}, "more than 64 MB"),
        (huge(65 << 20), "more than 64 MB"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_will_not_pass_is_told_at_once(fault, words):
    with PlayedModel([[fault, GOOD]]) as server:
        model = load("m", base_url=server.url, api_key="sk-1")
        with pytest.raises(ModelError, match=words) as wrong:
            anyio.run(model.ask, HI)
        assert not wrong.value.retryable
        assert "sk-1" not in str(wrong.value) + repr(wrong.value)
        assert len(server.requests) == 1


def test_a_redirect_gets_no_key():
    with PlayedModel([GOOD]) as other, PlayedModel([redirects(f"{other.url}/chat/completions")]) as server:
        model = load("m", base_url=server.url, api_key="sk-1")
        with pytest.raises(ModelError, match="redirects"):
            anyio.run(model.ask, HI)
        assert other.requests == []


@pytest.mark.parametrize("retries", [0, 2])
def test_it_is_asked_again_only_so_often(retries):
    with PlayedModel([fails(500)]) as server:
        model = load("m", base_url=server.url, retries=retries)
        with pytest.raises(ModelError, match="has failed") as wrong:
            anyio.run(model.ask, HI)
        assert len(server.requests) == 1 + retries
        assert wrong.value.retryable
        assert wrong.value.status == 500
        assert ("sent 3 times" in str(wrong.value)) == (retries == 2)


def test_a_server_that_asks_to_wait_too_long_is_not_waited_for():
    with PlayedModel([limited(3600)]) as server:
        model = load("m", base_url=server.url)
        with pytest.raises(ModelError, match="asks to wait for 3600 s") as wrong:
            anyio.run(model.ask, HI)
        assert wrong.value.retryable
        assert len(server.requests) == 1


def test_nobody_there_is_a_failure_that_says_so():
    with PlayedModel([GOOD]) as server:
        url = server.url
    model = load("m", base_url=url, retries=1)
    told = []
    with pytest.raises(
        ModelError, match=r"No answer from 127.*was not reached.*Is the server running there\?"
    ) as wrong:
        anyio.run(lambda: model.ask(HI, on_retry=told.append))
    assert wrong.value.retryable
    assert len(told) == 1


def test_the_whole_of_it_is_bounded(run):
    with PlayedModel([[fails(500), slow(GOOD, 60)]]) as server:
        model = load("m", base_url=server.url)
        with pytest.raises(ModelError, match=r"m did not answer within 0.4 s. Before that: .*HTTP 500") as wrong:
            run(lambda: model.ask(HI, timeout=0.4))
        assert wrong.value.retryable
        assert len(server.requests) == 2
        assert eventually(lambda: server.open_connections <= 1, "the second connection is closed")


def test_a_cancelled_question_ends_its_connection_and_its_thread(run):
    def ours():
        """How many threads are at work."""
        return sum(thread.name == THREAD for thread in threading.enumerate())

    with PlayedModel([GOOD]) as server:
        server.hold()
        model = load("m", base_url=server.url)

        async def work():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(model.ask, HI)
                await anyio.to_thread.run_sync(server.wait_for, 1)
                assert ours(), "the control: a thread waits"
                tasks.cancel_scope.cancel()

        run(work)
        assert eventually(lambda: not ours(), "the thread has ended")
        server.go_on()
        assert eventually(lambda: server.open_connections == 0, "the connection is closed")
        assert run(lambda: model.ask(HI)).text == "in the end"
        run(model.aclose)


@pytest.mark.parametrize("mine", ["max_tokens", "max_completion_tokens"])
def test_the_other_name_of_the_limit_is_tried_once_and_remembered(mine):
    def picky(request):
        wrong = next((key for key in request if key.startswith("max_") and key != mine), None)
        return fails(400, f"Unsupported parameter: '{wrong}' is not supported with this model.") if wrong else GOOD

    with PlayedModel(picky) as server:
        model = load("m", base_url=server.url, retries=0)

        async def work():
            return [await model.ask(HI, max_tokens=5) for _ in range(2)]

        first, second = anyio.run(work)
        anyio.run(model.aclose)
    swapped = mine == "max_completion_tokens"
    assert (first.attempts, second.attempts) == (2 if swapped else 1, 1)
    assert server.requests[-1].body[mine] == 5


def test_a_server_that_takes_neither_name_is_asked_twice():
    def picky(request):
        wrong = next(key for key in request if key.startswith("max_"))
        return fails(400, f"no {wrong}, please")

    with PlayedModel(picky) as server:
        with pytest.raises(ModelError, match="refused the request"):
            anyio.run(lambda: load("m", base_url=server.url).ask(HI, max_tokens=5))
        assert len(server.requests) == 2


def test_many_at_once_do_not_wait_for_each_other(run):
    with PlayedModel([GOOD]) as server:
        server.hold()
        model = load("m", base_url=server.url)
        replies = []

        async def one():
            replies.append(await model.ask(HI))

        async def work():
            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(one)
                # All are there before one is answered.
                assert await anyio.to_thread.run_sync(server.wait_for, 40)
                server.go_on()
            await model.aclose()

        run(work)
        assert len(replies) == 40


@pytest.mark.parametrize(
    "arguments",
    [
        {"messages": []},
        {"messages": "hi"},
        {"messages": ["hi"]},
        {"messages": [{"role": "user", "content": {1, 2}}]},
        {"messages": [{"role": "user", "content": float("nan")}]},
        {"messages": HI, "max_tokens": 0},
        {"messages": HI, "timeout": 0},
        {"messages": HI, "timeout": "1"},
    ],
    ids=str,
)
def test_what_cannot_be_sent_is_refused(arguments):
    with PlayedModel([GOOD]) as server:
        with pytest.raises(InvalidInput):
            anyio.run(lambda: load("m", base_url=server.url).ask(**arguments))
        assert server.requests == []


@pytest.mark.parametrize("name", ["", " ", "openai/", "/x", "litellm", "a\nb", None, 7, " gpt"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(InvalidInput, match="openai/gpt-4o-mini"):
        load(name)


@pytest.mark.parametrize("retries", [-1, 21, True, 1.5, None])
def test_a_number_of_retries_that_is_none_is_refused(retries):
    with pytest.raises(InvalidInput, match="from 0 to 20"):
        load("m", base_url="http://127.0.0.1:1/v1", retries=retries)


def test_no_key_is_shown_by_a_model(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
    for model in (load("gpt-4o"), load("m", base_url="http://127.0.0.1:1/v1", api_key="sk-given")):
        assert "sk-" not in repr(model) + str(vars(model))


def test_refusals_and_tool_calls_come_through():
    assert asked([refuses("No.")])[0].refusal == "No."
    (call,) = asked([calls(("f", "{not json"))])[0].tool_calls
    assert (call.name, call.arguments) == ("f", "{not json")


def test_nothing_heavy_is_imported_before_it_is_asked_and_little_then():
    script = """
import json, sys
before = set(sys.modules)
import atoll.models
model = atoll.models.load("m", base_url=sys.argv[1])
loaded = [sorted(set(sys.modules) - before)]
import anyio
anyio.run(model.ask, [{"role": "user", "content": "hi"}])
print(json.dumps([*loaded, sorted(set(sys.modules) - before)]))
"""
    with PlayedModel([GOOD]) as server:
        done = subprocess.run(
            [sys.executable, "-I", "-c", script, server.url], capture_output=True, text=True, check=True
        )
    first, all_of_it = json.loads(done.stdout)
    assert {"anyio", "asyncio", "atoll.http.client", "ssl", "socket", "litellm", "pydantic", "email"} & set(
        first
    ) == set()
    assert {"httpx", "litellm", "pydantic", "urllib.request", "trio"} & set(all_of_it) == set()
    assert {"anyio", "atoll.http.client"} <= set(all_of_it), "the control must see them"
