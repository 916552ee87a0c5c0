"""What replies cost, by LiteLLM's own table."""

from __future__ import annotations

import json
import pathlib
import sys
import threading

import pytest

from atoll.models import Usage, cost_of, prices
from atoll.models.prices import names_of

TEXT = pathlib.Path(prices._table()).read_text(encoding="utf-8")
TABLE = json.loads(TEXT)
USAGE = Usage(1000, 100)


@pytest.fixture
def unread(monkeypatch):
    """Nothing is known of the table yet."""
    monkeypatch.setattr(prices, "_entries", {})
    monkeypatch.setattr(prices, "_looked", False)
    monkeypatch.setattr(prices, "_path", None)


def expected(name, prompt=1000, completion=100):
    entry = TABLE[name]
    return pytest.approx(prompt * entry["input_cost_per_token"] + completion * entry["output_cost_per_token"])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("openai/gpt-4o-mini", "gpt-4o-mini"),
        ("litellm/openai/gpt-4o-mini", "gpt-4o-mini"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("deepseek/deepseek-chat", "deepseek/deepseek-chat"),
        ("gemini/gemini-2.5-pro", "gemini/gemini-2.5-pro"),
    ],
)
def test_a_model_costs_what_the_table_says(name, entry):
    assert cost_of(name, USAGE) == expected(entry)
    assert cost_of(name, USAGE) > 0


def test_a_model_that_is_not_in_the_table_costs_nobody_knows_what():
    for name in (
        "played",
        "openai/no-such-model",
        "meta-llama/private",
        "litellm_provider",
        "sample_spec",
        'a"b\\',
        "",
    ):
        assert cost_of(name, USAGE) is None


def test_the_name_of_another_provider_is_not_enough():
    assert cost_of("anthropic/claude-sonnet-4-5", USAGE) is not None
    assert cost_of("ollama/claude-sonnet-4-5", USAGE) is None
    assert cost_of("openai/claude-sonnet-4-5", USAGE) is None


def test_cached_tokens_cost_what_the_table_says():
    entry = TABLE["gpt-4o-mini"]
    assert entry["cache_read_input_token_cost"] < entry["input_cost_per_token"]
    saved = 400 * (entry["input_cost_per_token"] - entry["cache_read_input_token_cost"])
    assert cost_of("gpt-4o-mini", Usage(1000, 100, 400)) == pytest.approx(cost_of("gpt-4o-mini", USAGE) - saved)


def test_long_prompts_cost_more_where_the_table_says_so():
    entry = TABLE["gemini/gemini-2.5-pro"]
    long = 300_000 * entry["input_cost_per_token_above_200k_tokens"]
    assert cost_of("gemini/gemini-2.5-pro", Usage(300_000, 0)) == pytest.approx(long)
    short = 200_000 * entry["input_cost_per_token"]
    assert cost_of("gemini/gemini-2.5-pro", Usage(200_000, 0)) == pytest.approx(short)


def test_every_entry_of_the_table_is_found_without_parsing_the_table():
    for name, entry in list(TABLE.items())[1::37]:
        assert prices._entry(TEXT, name) == entry


def test_nothing_is_imported_for_it_and_the_table_is_read_once(unread):
    before = set(sys.modules)
    assert cost_of("gpt-4o-mini", USAGE) == expected("gpt-4o-mini")
    assert not {name for name in set(sys.modules) - before if name.startswith(("litellm", "genai_prices"))}
    found = []
    threads = [threading.Thread(target=lambda: found.append(cost_of("gpt-4o-mini", USAGE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_without_litellm_genai_prices_is_asked(unread, monkeypatch):
    monkeypatch.setattr(prices, "_table", lambda: None)
    assert cost_of("openai/gpt-4o-mini", USAGE) == expected("gpt-4o-mini")
    assert cost_of("gpt-4o-mini", Usage(1000, 100, 400)) < cost_of("gpt-4o-mini", USAGE)
    assert cost_of("openai/no-such-model", USAGE) is None
    assert cost_of("nobody/gpt-4o-mini", USAGE) is None


def test_without_either_nothing_is_known(unread, monkeypatch):
    monkeypatch.setattr(prices, "_table", lambda: None)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost_of("openai/gpt-4o-mini", USAGE) is None


def test_a_table_that_is_broken_is_no_price(unread, monkeypatch, tmp_path):
    broken = tmp_path / "table.json"
    broken.write_text('{\n    "gpt-4o-mini": {"litellm_provider": "openai", "input_cost_per_token": "much"')
    monkeypatch.setattr(prices, "_table", lambda: str(broken))
    assert cost_of("gpt-4o-mini", USAGE) is None
    broken.write_text('{\n    "other": {"litellm_provider": "openai", "input_cost_per_token": true}\n}')
    assert cost_of("other", USAGE) is None


def test_our_prefixes_are_theirs():
    assert names_of("together/a/b")[0] == ("together_ai/a/b", None)
    assert names_of("fireworks/a")[0] == ("fireworks_ai/a", None)
