"""MCP servers as they are written down, and what is never told of them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll.config.servers import Server, check_servers, described
from atoll.errors import InvalidInput


def test_both_kinds_are_read():
    started, reached = check_servers(
        {
            "files": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "cwd": "/tmp"},
            "docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "k"}, "timeout": 5,
                "start_timeout": 7, "tools": ["search"]},
        }
    )  # fmt: skip
    assert started == Server("files", ("npx", "-y", "x"), {"A": "b"}, "/tmp")
    assert (started.timeout, started.start_timeout, started.tools) == (60.0, 60.0, None)
    assert reached == Server("docs", url="https://example.com/mcp", headers={"X-Key": "k"}, tools=("search",),
        timeout=5.0, start_timeout=7.0)  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (5, "with `command` or with `url`"),
        ({}, "needs either `command`"),
        ({"command": "a", "url": "https://x"}, "needs either `command`"),
        ({"command": ""}, "empty `command`"),
        ({"command": 5}, "put it in quotes"),
        ({"command": "a\0b"}, "put it in quotes"),
        ({"command": "a", "args": "b"}, r"write it as \[\"one\""),
        ({"command": "a", "args": [1]}, "put it in quotes"),
        ({"command": "a", "env": {"A": 1}}, "no table of strings"),
        ({"command": "a", "env": {"A=B": "x"}}, "leave out ="),
        ({"command": "a", "headers": {}}, "unknown key 'headers'"),
        ({"command": "a", "arg": []}, "did you mean 'args'"),
        ({"command": "a", "type": "http"}, "write 'stdio' with `command`"),
        ({"url": "https://x", "type": "sse"}, "or 'http' with `url`"),
        ({"url": "example.com"}, "`url` that is none"),
        ({"url": "file:///etc/passwd"}, "`url` that is none"),
        ({"url": "https://x\r\ny"}, "`url` that is none"),
        ({"url": "https://x:0"}, "`url` that is none"),
        ({"url": "https://x", "headers": {"A B": "x"}}, "HTTP cannot carry"),
        ({"url": "https://x", "headers": {"A": "x\r\nB: y"}}, "HTTP cannot carry"),
        ({"url": "https://x", "timeout": 0}, "the timeout 0; give seconds"),
        ({"url": "https://x", "start_timeout": True}, "the start_timeout True; give seconds"),
        ({"url": "https://x", "timeout": float("nan")}, "give seconds"),
        ({"url": "https://x", "tools": "all"}, "is no list"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(entry, told):
    with pytest.raises(InvalidInput, match=told):
        check_servers({"mine": entry})


@pytest.mark.parametrize("name", ["", "a/b", "x" * 65, 5, "\n"])
def test_names_that_cannot_be_are_refused(name):
    assert check_servers({"my server.v2": {"command": "a"}}), "the control"
    with pytest.raises(InvalidInput, match="needs another name"):
        check_servers({name: {"command": "a"}})


def test_variables_stand_for_secrets_in_values_only():
    entry = {"url": "https://x", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    (filled,) = check_servers({"a": entry}, {"TOKEN": "sesame-open"})
    assert filled.headers == {"Authorization": "Bearer sesame-open"}
    (as_written,) = check_servers({"a": entry})
    assert as_written.headers == entry["headers"]
    (other,) = check_servers({"a": {"command": "${TOKEN}", "env": {"A": "$TOKEN ${TOKEN}"}}}, {"TOKEN": "t"})
    assert (other.command, other.env) == (("${TOKEN}",), {"A": "$TOKEN t"})
    with pytest.raises(InvalidInput, match="needs the variable TOKEN, which is not set"):
        check_servers({"a": entry}, {})
    with pytest.raises(InvalidInput, match="HTTP cannot carry") as refused:
        check_servers({"a": entry}, {"TOKEN": "sesame\r\nX: y"})
    assert "sesame" not in str(refused.value)


SECRETS = {
    "a": {
        "command": "serve",
        "args": ["--api-key=arg-secret", "plain", "--token", "word-of-mine"],
        "env": {"MY_TOKEN": "env-secret"},
    },
    "b": {"url": "https://me:url-secret@x.example/p?key=query-secret", "headers": {"X": "Bearer head-secret"}},
    "c": {"url": "https://y.example/mcp", "headers": {"X": "${FROM_OUTSIDE}"}},
}


def test_what_may_be_secret_is_not_shown():
    shown = str(described(SECRETS)) + repr(check_servers(SECRETS))
    assert "secret" not in shown
    assert described(SECRETS)["a"]["args"] == ["***", "plain", "***", "***"]
    assert described(SECRETS)["b"]["url"] == "https://x.example"
    assert described(SECRETS)["c"]["headers"] == {"X": "${FROM_OUTSIDE}"}, "the name of a variable is no secret"


def test_what_was_given_is_known_to_be_secret():
    one, two, _ = check_servers(SECRETS)
    assert one.secrets() == ["env-secret"]
    assert set(two.secrets()) == {"Bearer head-secret", "query-secret", "head-secret", "url-secret"}
    assert two.secrets()[0] == "Bearer head-secret", "the longest comes first, so that none is left in part"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = ["command", "args", "env", "cwd", "url", "headers", "tools", "timeout", "start_timeout", "type"]


@examples(3000, 300)
@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.just("http://x"), max_size=4))
def test_whatever_is_written_is_refused_with_a_sentence_or_read(entry):
    try:
        (server,) = check_servers({"a": entry})
    except InvalidInput:
        return
    assert bool(server.command) != bool(server.url)
    described({"a": entry})
    server.secrets()
