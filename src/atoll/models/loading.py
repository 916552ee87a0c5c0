"""From the name of a model to the model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .contract import Model

MOST_RETRIES = 20


def load(name: str, *, base_url: str | None = None, api_key: str | None = None, retries: int = 4) -> Model:
    """The model of that name: `openai/gpt-4o-mini`, `ollama/llama3.2`, `anthropic/claude-sonnet-4-5`, ...

    Without a prefix it is OpenAI's. With `base_url`, or `$ATOLL_BASE_URL`, it is whatever speaks OpenAI's format there.
    A prefix that the built-in client does not know, and `litellm/` before any other, goes through LiteLLM. Nothing is
    sent and nothing heavy is imported before it is asked.

    Raises: InvalidInput for a name, URL, key or number that cannot be; ModelError, with a hint, when a key or LiteLLM
    is missing.
    """
    _check_name(name)
    _check_retries(retries)
    from .endpoint import find_endpoint, is_compatible

    base = base_url or os.environ.get("ATOLL_BASE_URL") or None
    if is_compatible(name, base):
        from .compatible import Compatible

        return Compatible(name, find_endpoint(name, base_url, api_key, os.environ), retries=retries)
    from .lite import Lite, find_litellm

    find_litellm(name)
    key = api_key or os.environ.get("ATOLL_API_KEY", "").strip() or None
    return Lite(name, base_url=base, api_key=key, retries=retries)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or not name or name != name.strip():
        raise InvalidInput(f"{name!r} is no name of a model; write one such as 'openai/gpt-4o-mini'.")
    if name.endswith("/") or name.startswith("/") or name == "litellm":
        raise InvalidInput(f"{name!r} is half a name; write provider/model, such as 'openai/gpt-4o-mini'.")


def _check_retries(retries: object) -> None:
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MOST_RETRIES:
        raise InvalidInput(f"retries is a whole number from 0 to {MOST_RETRIES}, not {retries!r}.")
