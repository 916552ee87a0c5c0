"""Whatever a server writes becomes a reply or an error with a sentence, never anything else."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll.models import Reply, ToolCall, Usage, estimate_tokens
from atoll.models.endpoint import find_endpoint
from atoll.models.parsing import UNNAMED, Malformed, Reported, parse
from atoll.models.refusals import refusal, retry_after
from atoll.testing.playedreplies import calls, completion, refuses, says

HERE = find_endpoint("m", "http://127.0.0.1:1/v1", "sk-secret", {})


def parsed(value, kind="application/json"):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return parse(body, kind, "asked")[0]


def with_message(**message):
    return {"choices": [{"message": message}]}


def test_a_reply_is_read():
    value = completion(says("hi", usage=(10, 2, 4), reasoning="hm"), {"model": "m"}, 0)
    assert parsed(value) == Reply("hi", (), "stop", Usage(10, 2, 4), "m", None, reasoning="hm")
    value = completion(calls(("f", {"a": 1}), ("g", '{"half')), {}, 3)
    assert parsed(value).tool_calls == (ToolCall("call_3_0", "f", '{"a": 1}'), ToolCall("call_3_1", "g", '{"half'))
    assert parsed(value).finish == "tool_calls"
    assert parsed(completion(refuses("No."), {}, 0))[:3] == ("", (), "stop")
    assert parsed(completion(refuses("No."), {}, 0)).refusal == "No."


@pytest.mark.parametrize(
    ("value", "complaint", "again"),
    [
        (b"", "is empty", True),
        (b'{"choices": [{"mess', "is no JSON", True),
        (b"[" * 100_000, "is no JSON", True),
        (b'{"choices": NaN}', "is no JSON", True),
        (b"9" * 5000, "is no JSON", True),
        (b"<html>log in</html>", "web page", False),
        (b"data: {}\n\n", "a stream, which was not asked for", False),
        ([], "JSON object, and is a list", False),
        (None, "JSON object, and is nothing", False),
        ({}, "has nothing", True),
        ({"choices": {}}, "list of choices, and has an object", False),
        ({"choices": []}, "no choice", True),
        ({"choices": [7]}, "should have a message", False),
        ({"choices": [{"message": "hi"}]}, "should have a message", False),
        (with_message(content=7), "text as its content, and has a number", False),
        (with_message(tool_calls={"name": "f"}), "list of tool calls", False),
    ],
)
def test_what_is_no_reply_is_told(value, complaint, again):
    with pytest.raises(Malformed, match=complaint) as wrong:
        parsed(value)
    assert wrong.value.again is again


def test_an_error_inside_a_good_status_is_an_error():
    for value, status in [
        ({"error": {"code": 429, "message": "slow down"}}, 429),
        ({"error": {"code": "502"}}, 502),
        ({"error": "oh"}, 500),
        ({"choices": [{"error": {"code": 400}}]}, 400),
        ({"choices": [{"finish_reason": "error", "message": {"content": "x"}}]}, 500),
    ]:
        with pytest.raises(Reported) as wrong:
            parsed(value)
        assert wrong.value.status == status


def test_tool_calls_that_are_broken_can_still_be_answered():
    broken = [
        {"function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "same", "function": {"name": "f", "arguments": None}},
        {"id": "same", "function": {"name": "", "arguments": ""}},
        {"id": 7, "function": {"name": ["f"], "arguments": 3}},
        {"id": "", "name": "flat", "arguments": "[1]"},
        None,
    ]
    found = parsed(with_message(content=None, tool_calls=broken)).tool_calls
    assert len({call.id for call in found}) == 6
    assert all(call.id for call in found)
    assert [call.name for call in found] == ["f", "f", UNNAMED, UNNAMED, "flat", UNNAMED]
    assert [call.arguments for call in found] == ['{"a": 1}', "{}", "{}", "3", "[1]", "{}"]
    old = parsed({"choices": [{"message": {"function_call": {"name": "f", "arguments": "{}"}}}]})
    assert old.tool_calls[0][1:] == ("f", "{}")


def test_content_in_parts_is_put_together():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        "b",
        {"type": "image_url", "image_url": {}},
        {"type": "refusal", "refusal": "no"},
    ]
    reply = parsed(with_message(content=parts))
    assert reply.text == "ab[a part of type 'image_url']"
    assert (reply.reasoning, reply.refusal) == ("hm", "no")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2.0}, Usage(5, 2)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, 2, 5)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3}, Usage(5, 2, 3)),
        ({"prompt_tokens": -5, "completion_tokens": 2}, None),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": "5", "completion_tokens": 2}, None),
        ({"prompt_tokens": 10**30, "completion_tokens": 2}, None),
        ({"prompt_tokens": 5}, None),
        ("many", None),
        (None, None),
    ],
)
def test_usage_is_believed_only_where_it_can_be(usage, expected):
    assert parsed({**with_message(content="x"), "usage": usage}).usage == expected


def test_half_a_character_does_not_come_through():
    reply = parsed(b'{"choices": [{"message": {"content": "a\\ud800b \\ud83d\\ude00"}}]}')
    assert reply.text == "a?b \N{GRINNING FACE}"
    reply.text.encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
CALL = JSON | st.fixed_dictionaries(
    {}, optional={"id": JSON, "function": JSON | st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON})}
)
MESSAGE = JSON | st.fixed_dictionaries(
    {},
    optional={
        "content": JSON | st.lists(st.fixed_dictionaries({}, optional={"type": JSON, "text": JSON})),
        "tool_calls": JSON | st.lists(CALL, max_size=4),
        "function_call": CALL,
        "refusal": JSON,
        "reasoning": JSON,
    },
)
BODY = JSON | st.fixed_dictionaries(
    {},
    optional={
        "choices": JSON
        | st.lists(st.fixed_dictionaries({}, optional={"message": MESSAGE, "finish_reason": JSON, "error": JSON})),
        "usage": JSON | st.fixed_dictionaries({"prompt_tokens": JSON, "completion_tokens": JSON}),
        "error": JSON,
        "model": JSON,
    },
)


@examples(3000, 300)
@given(BODY)
def test_every_json_value_becomes_a_reply_or_an_error(value):
    try:
        reply = parsed(value)
    except (Malformed, Reported):
        return
    assert [type(part) for part in (reply.text, reply.finish, reply.model)] == [str, str, str]
    assert len({call.id for call in reply.tool_calls}) == len(reply.tool_calls)
    for call in reply.tool_calls:
        assert all(isinstance(part, str) and part for part in call)
    assert Reply.from_json(json.loads(json.dumps(reply.to_json()))) == reply


@examples(2000, 200)
@given(st.binary(max_size=200), st.sampled_from(["", "application/json", "text/html", "text/plain"]))
def test_every_body_becomes_a_reply_or_an_error(body, kind):
    with pytest.raises((Malformed, Reported)):
        parse(body, kind, "asked")


@examples(2000, 200)
@given(
    st.integers(100, 999),
    st.binary(max_size=100) | BODY.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "location"]), st.text(max_size=20)),
)
def test_every_refusal_is_a_sentence_without_the_key(status, body, headers):
    failure = refusal(status, headers, body + b"sk-secret", HERE, time.time())
    said = str(failure.error)
    assert 0 < len(said) < 1500
    assert said.isprintable()
    assert "sk-secret" not in said
    assert failure.wait is None or 0 <= failure.wait < float("inf")


@pytest.mark.parametrize(
    ("status", "body", "words", "again"),
    [
        (
            401,
            {"error": {"message": "bad key sk-secret"}},
            r"refused the key.*bad key \*\*\*.*key was that of api_key",
            False,
        ),
        (403, {}, "refused the key", False),
        (402, {"error": {"message": "pay"}}, "no credit left", False),
        (429, {"error": {"message": "x", "code": "insufficient_quota"}}, "no credit left", False),
        (429, {"error": {"message": "Visit your billing page for higher limits"}}, "too many requests", True),
        (404, {"error": {"message": "no such model"}}, "has no model 'm'.*no such model", False),
        (400, {"error": {"message": "maximum context length is 8192 tokens"}}, "too long.*Send less", False),
        (400, {"detail": [{"msg": "field required"}]}, "refused the request.*field required", False),
        (429, {}, "too many requests", True),
        (500, {"message": "oh\x1b[31m\nno"}, "has failed.*oh .31m no", True),
        (503, "<html>", "has failed", True),
        (501, {}, "has failed", False),
        (307, {}, "redirects to https://evil.example/", False),
    ],
)
def test_each_status_has_its_sentence(status, body, words, again):
    text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = refusal(status, {"location": "https://evil.example/"}, text, HERE, 0.0).error
    assert error.retryable is again
    assert error.status == status
    assert re.search(words, str(error)), str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers, seconds):
    assert retry_after(headers, 60.0) == seconds


@examples(500, 100)
@given(st.text())
def test_tokens_are_never_zero_for_text(text):
    assert (estimate_tokens(text) == 0) == (text == "")
    assert estimate_tokens(text) <= len(text)
