"""Snipara's service is a server like others, if the environment has a key and a project for it."""

from __future__ import annotations

import pytest

from atoll.agent.snipara import server_from
from atoll.config.servers import check_servers
from atoll.errors import InvalidInput

KEY = {"SNIPARA_API_KEY": "sk-very-secret"}
BOTH = {**KEY, "SNIPARA_PROJECT_SLUG": "my-project"}


def test_key_and_project_make_a_server():
    assert server_from(BOTH) == {
        "url": "https://api.snipara.com/mcp/my-project",
        "headers": {"X-API-Key": "sk-very-secret"},
    }
    assert check_servers({"snipara": server_from(BOTH)})
    assert server_from(KEY, "other")["url"].endswith("/mcp/other")
    assert server_from({**BOTH, "SNIPARA_API_URL": "http://127.0.0.1:9/"})["url"] == "http://127.0.0.1:9/mcp/my-project"


def test_without_both_there_is_none():
    assert server_from({}) is None
    assert server_from(KEY) is None
    assert server_from({"SNIPARA_PROJECT_SLUG": "my-project"}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"SNIPARA_PROJECT_SLUG": "../admin"},
        {"SNIPARA_PROJECT_SLUG": "a/b"},
        {"SNIPARA_PROJECT_SLUG": "a?x=1"},
        {"SNIPARA_PROJECT_SLUG": "-"},
        {"SNIPARA_PROJECT_SLUG": "x" * 200},
        {"SNIPARA_API_URL": "ftp://x"},
        {"SNIPARA_API_URL": "http://example.com"},
        {"SNIPARA_API_URL": "http://localhost.example.com"},
        {"SNIPARA_API_KEY": "sk-very-secret\nX-Other: 1"},
    ],
)
def test_what_would_go_elsewhere_is_refused_and_the_key_is_not_told(wrong):
    with pytest.raises(InvalidInput) as refused:
        server_from({**BOTH, **wrong})
    assert "sk-very-secret" not in str(refused.value)
