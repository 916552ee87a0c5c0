"""Where a model is asked, and which key goes there."""

from __future__ import annotations

import os
import pickle

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll.errors import InvalidInput, ModelError
from atoll.http.address import find_proxy
from atoll.models.endpoint import Key, find_endpoint, is_compatible, parse_url
from atoll.models.providers import PROVIDERS
from atoll.models.refusals import refusal

SECRETS = {"OPENAI_API_KEY": "sk-openai", "GROQ_API_KEY": "gsk-groq"}


def found(name, base_url=None, api_key=None, **environment):
    return find_endpoint(name, base_url, api_key, environment)


@pytest.mark.parametrize(
    ("name", "url", "model", "key"),
    [
        ("gpt-4o-mini", "https://api.openai.com/v1", "gpt-4o-mini", "sk-openai"),
        ("openai/gpt-4o-mini", "https://api.openai.com/v1", "gpt-4o-mini", "sk-openai"),
        ("groq/openai/gpt-oss-20b", "https://api.groq.com/openai/v1", "openai/gpt-oss-20b", "gsk-groq"),
        ("ollama/llama3.2:1b", "http://localhost:11434/v1", "llama3.2:1b", None),
    ],
)
def test_a_prefix_is_a_place_and_a_key(name, url, model, key):
    place = found(name, **SECRETS)
    assert (str(place.address), place.model) == (url, model)
    assert (place.key and place.key.reveal()) == key


def test_a_missing_key_is_told_with_the_variable_to_set():
    with pytest.raises(ModelError, match=r"no API key for groq.*Set \$GROQ_API_KEY"):
        found("groq/x", OPENAI_API_KEY="sk-openai")
    assert found("groq/x", GROQ_API_KEY="gsk").key.reveal() == "gsk"


def test_a_name_of_another_providers_family_is_asked_about():
    with pytest.raises(ModelError, match=r"no API key for openai\. Did you mean 'anthropic/claude-3-5-sonnet'\?"):
        found("claude-3-5-sonnet")
    with pytest.raises(ModelError, match=r"no API key for openai\. Set \$OPENAI_API_KEY"):
        found("gpt-4o-mini")
    asked = refusal(404, {}, b"{}", found("gemini-2.5-pro", **SECRETS), 0.0)
    assert "Did you mean 'gemini/gemini-2.5-pro'?" in str(asked.error)
    assert "Did you mean" not in str(refusal(404, {}, b"{}", found("gpt-9", **SECRETS), 0.0).error)


@pytest.mark.parametrize("provider", [one for one in PROVIDERS.values() if one.key])
def test_the_key_of_one_provider_goes_to_no_other_host(provider):
    everything = {one.key: f"key-of-{one.key}" for one in PROVIDERS.values() if one.key}
    elsewhere = "https://models.example.com/v1"
    assert found(f"{provider.name}/x", elsewhere, **everything).key is None
    assert found(f"{provider.name}/x", ATOLL_BASE_URL=elsewhere, **everything).key is None
    assert found(f"{provider.name}/x", **everything).key.reveal() == f"key-of-{provider.key}"
    # The host decides, not the prefix.
    assert found("openai/x", provider.url, **everything).key.reveal() == f"key-of-{provider.key}"
    # The same host on another port, or without TLS, is another.
    assert found("x", provider.url.replace("https://", "http://"), **everything).key is None
    assert found("x", provider.url.replace(".", "-", 1), **everything).key is None


def test_openai_s_key_goes_to_openai_s_variable_and_only_by_it():
    url = "https://gateway.example.com/v1"
    place = found("gpt-4o", OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-openai")
    assert (str(place.address), place.key.reveal()) == (url, "sk-openai")
    assert found("gpt-4o", url, OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-openai").key is None
    assert found("groq/x", OPENAI_BASE_URL=url, **SECRETS).address.host == "api.groq.com"


def test_what_is_given_wins_over_what_is_set():
    url = "https://a.example.com/v1"
    environment = {"ATOLL_BASE_URL": "https://b.example.com/v1", "OPENAI_BASE_URL": "https://c.example.com/v1"}
    assert found("gpt-4o", url, **environment).address.host == "a.example.com"
    assert found("gpt-4o", **environment).address.host == "b.example.com"
    assert found("x", url, "given", ATOLL_API_KEY="set").key.reveal() == "given"
    assert found("gpt-4o", ATOLL_API_KEY="set", **SECRETS).key.reveal() == "set"


def test_no_key_goes_over_the_network_in_clear():
    with pytest.raises(InvalidInput, match="in clear over the network"):
        found("x", "http://10.0.0.5:8000/v1", "key")
    with pytest.raises(InvalidInput, match="in clear") as refused:
        found("x", "http://127.0.0.1.example.com/v1", ATOLL_API_KEY="secret-key")
    assert "secret-key" not in str(refused.value)
    for url in ("http://127.0.0.1:1/v1", "http://localhost/v1", "http://[::1]:8000/v1", "https://10.0.0.5/v1"):
        assert found("x", url, "key").key.reveal() == "key"
    assert found("x", "http://10.0.0.5:8000/v1").key is None


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("https://user:pw@example.com/v1", "user name or password"),
        ("https://key@example.com/v1", "user name or password"),
        ("example.com/v1", "neither http"),
        ("ftp://example.com/v1", "neither http"),
        ("file:///etc/passwd", "neither http"),
        ("https:///v1", "no host"),
        ("https://example.com/v1?key=1", "after a"),
        ("https://example.com:99999/v1", "cannot be read"),
        ("https://exa mple.com/v1", "without spaces"),
        ("https://example.com/v1\r\nX: y", "line breaks"),
        ("https://exämple.com/v1", "ASCII"),
    ],
)
def test_a_url_that_cannot_be_is_told(url, complaint):
    with pytest.raises(InvalidInput, match=complaint) as refused:
        parse_url(url, "base_url")
    assert "pw" not in str(refused.value)


def test_a_url_may_end_in_what_people_paste():
    for tail in ("", "/", "/chat/completions", "/chat/completions/"):
        assert parse_url(f"https://example.com/v1{tail}", "base_url").path == "/v1"
    assert parse_url("http://[::1]:8000/v1", "base_url").netloc == "[::1]:8000"


def test_a_key_shows_itself_nowhere():
    key = Key(" sk-secret\n", "api_key")
    assert key.reveal() == "sk-secret"
    assert "secret" not in repr(key) + str(key) + f"{found('x', 'https://e.com/v1', 'sk-secret')}"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)
    with pytest.raises(InvalidInput, match="characters that no key has") as refused:
        Key("sk-secret\nX-Evil: 1", "$ATOLL_API_KEY")
    assert "secret" not in str(refused.value)


def test_what_litellm_speaks_to():
    assert not is_compatible("anthropic/claude", None)
    assert not is_compatible("litellm/openai/gpt-4o", "https://example.com/v1")
    assert is_compatible("gpt-4o", None)
    assert is_compatible("meta-llama/Llama-3", "http://localhost:8000/v1")
    assert found("meta-llama/Llama-3", "http://localhost:8000/v1").model == "meta-llama/Llama-3"


@examples(500, 100)
@given(st.text(max_size=40), st.sampled_from(["", "http://", "https://"]))
def test_any_url_is_read_or_refused_with_a_sentence(text, scheme):
    try:
        address = parse_url(scheme + text, "base_url")
    except InvalidInput as error:
        said = str(error)
    else:
        said = f"https://api.example.com/v1 {address.host}" if " " not in str(address) else ""
    assert "https://api.example.com/v1" in said
    assert said.isprintable()


def proxied(monkeypatch, environment):
    """No other proxies than those."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("url", "environment", "host"),
    [
        ("https://a.example.com/v1", {"HTTPS_PROXY": "http://p:1"}, "p"),
        ("https://a.example.com/v1", {"https_proxy": "p:1"}, "p"),
        ("https://a.example.com/v1", {"ALL_PROXY": "http://q"}, "q"),
        ("https://a.example.com/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://a.example.com/v1", {"HTTP_PROXY": "http://p:1"}, "p"),
        ("http://a.example.com/v1", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
        ("http://localhost/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://127.0.0.2/v1", {"ALL_PROXY": "http://p:1"}, None),
        ("https://a.example.com/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.com, .example.com"}, None),
        ("https://a.example.com/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com:443"}, None),
        ("https://a.example.com/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com:80"}, "p"),
        ("https://a.example.com/v1", {"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, None),
        ("https://notexample.com/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com"}, "p"),
    ],
)
def test_proxies_are_those_of_the_environment(url, environment, host, monkeypatch):
    proxied(monkeypatch, environment)
    proxy = find_proxy(parse_url(url, "base_url"))
    assert (proxy and proxy.host) == host


def test_the_password_of_a_proxy_is_not_shown(monkeypatch):
    address = parse_url("https://example.com/v1", "base_url")
    proxied(monkeypatch, {"HTTPS_PROXY": "http://me:s%40cret@p:3128"})
    proxy = find_proxy(address)
    assert proxy.authorization == "Basic bWU6c0BjcmV0"
    assert "bWU6" not in repr(proxy)
    proxied(monkeypatch, {"HTTPS_PROXY": "socks5://me:secret@p"})
    with pytest.raises(InvalidInput, match=r"\$HTTPS_PROXY should be") as refused:
        find_proxy(address)
    assert "secret" not in str(refused.value)
