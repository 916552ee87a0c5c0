"""What a reply costs, by LiteLLM's table of prices, or by genai-prices where LiteLLM is not installed.

Neither is imported for it: the table is a file, and of its three megabytes only the entry of a model is parsed.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from .providers import PROVIDERS

if TYPE_CHECKING:
    from .contract import Usage

_TABLE = "model_prices_and_context_window_backup.json"
_EXAMPLE = "sample_spec"
"""Its first entry, which explains the others."""
_entries: dict[str, dict[str, Any] | None] = {}
_lock = threading.Lock()
_path: str | None = None
_looked = False


def cost_of(model: str, usage: Usage) -> float | None:
    """Dollars for that usage of a model, whose name is as in `load`; None when its price is not known."""
    with _lock:
        if model not in _entries:
            _entries[model] = _find(model)
        entry = _entries[model]
        path = _path
    if entry is not None:
        return _by_table(entry, usage)
    return None if path is not None else _by_genai_prices(model, usage)


def are_known() -> bool:
    """Whether there is anything here that knows prices at all."""
    import importlib.util

    return _table() is not None or importlib.util.find_spec("genai_prices") is not None


def names_of(model: str) -> list[tuple[str, str | None]]:
    """How LiteLLM's table may call a model, best first, each with the provider that its entry must have."""
    full = model.removeprefix("litellm/")
    prefix, slash, rest = full.partition("/")
    if not slash:
        return [(full, "openai"), (full, None)]
    priced_as = PROVIDERS[prefix].priced_as if prefix in PROVIDERS else prefix
    return [(f"{priced_as}/{rest}", None), (rest, priced_as)]


def _find(model: str) -> dict[str, Any] | None:
    global _path, _looked
    if not _looked:
        _path, _looked = _table(), True
    if _path is None:
        return None
    try:
        with open(_path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        return None
    for name, provider in names_of(model) if model != _EXAMPLE else ():
        entry = _entry(text, name)
        if entry is not None and (provider is None or entry.get("litellm_provider") == provider):
            return entry
    return None


def _table() -> str | None:
    """The file, without importing the package that it lies in."""
    import importlib.util
    import os

    try:
        found = importlib.util.find_spec("litellm")
    except (ImportError, ValueError):
        return None
    for place in (found.submodule_search_locations or []) if found is not None else []:
        path = os.path.join(place, _TABLE)
        if os.path.isfile(path):
            return path
    return None


def _entry(text: str, name: str) -> dict[str, Any] | None:
    """One entry of the table. The table is indented, and a name within another entry has no provider."""
    start = f"\n    {json.dumps(name)}: "
    at = text.find(start)
    if at < 0:
        return None
    try:
        entry, _ = json.JSONDecoder().raw_decode(text, at + len(start))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "litellm_provider" in entry else None


def _by_table(entry: dict[str, Any], usage: Usage) -> float | None:
    prompt = _price(entry, "input_cost_per_token", usage)
    completion = _price(entry, "output_cost_per_token", usage)
    if prompt is None or completion is None:
        return None
    cached = _price(entry, "cache_read_input_token_cost", usage)
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (
        fresh * prompt
        + usage.cached_tokens * (prompt if cached is None else cached)
        + (usage.completion_tokens * completion)
    )


def _price(entry: dict[str, Any], name: str, usage: Usage) -> float | None:
    """A price, or that for long prompts, such as `input_cost_per_token_above_200k_tokens`, where it applies."""
    found, above = entry.get(name), -1
    for key, price in entry.items():
        if key.startswith(f"{name}_above_") and key.endswith("k_tokens"):
            number = key[len(name) + 7 : -8]
            if number.isdecimal() and above < int(number) * 1000 < usage.prompt_tokens:
                found, above = price, int(number) * 1000
    good = isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 1
    return float(found) if good and found is not None else None


def _by_genai_prices(model: str, usage: Usage) -> float | None:
    try:
        import genai_prices
    except ImportError:
        return None
    prefix, slash, rest = model.removeprefix("litellm/").partition("/")
    counted = genai_prices.Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_tokens=usage.cached_tokens or None,
    )
    try:
        found = genai_prices.calc_price(counted, rest if slash else prefix, provider_id=prefix if slash else "openai")
    except (LookupError, ValueError, TypeError):
        return None
    return float(found.total_price)
