"""LiteLLM behind the same interface, for all the providers that the built-in client does not know."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from .compatible import check_limit, check_messages, encode
from .contract import Reply
from .endpoint import Key
from .refusals import Failure
from .retrying import ask_until_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MALICIOUS = {"1.82.7", "1.82.8"}
"""Releases that stole what they found."""
_NO_KEY = "none"
_loading = threading.Lock()
_litellm: Any = None


def find_litellm(name: str) -> None:
    """Make sure, without importing it, that LiteLLM is installed and is not one of the releases that must not be.

    Raises: ModelError.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("litellm")
    except PackageNotFoundError:
        from .providers import PROVIDERS

        known = ", ".join(PROVIDERS)
        message = f"{name!r} needs LiteLLM, which is not installed. Without it there are: {known}."
        raise ModelError(message, hint="pip install 'atoll[litellm]'") from None
    if found in MALICIOUS:
        raise ModelError(
            f"litellm {found} is malicious: it steals keys. It was not imported.",
            hint="Remove it, change every key on this machine, and pip install 'atoll[litellm]'.",
        )


class Lite:
    """A model that LiteLLM speaks to. A call that is cancelled is not waited for, but ends only with its time."""

    def __init__(self, name: str, *, base_url: str | None, api_key: str | None, retries: int) -> None:
        self.name = name
        self._model = name.removeprefix("litellm/")
        self._retries = retries
        self._base_url = base_url
        # With a URL and no key LiteLLM would send the key of the provider there, whoever's it is.
        self._key = Key(api_key, "api_key") if api_key else Key(_NO_KEY, "nowhere") if base_url else None

    def __repr__(self) -> str:
        return f"<model {self._model} through LiteLLM>"

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        timeout: float | None = None,
        on_retry: Callable[[str], None] | None = None,
    ) -> Reply:
        """See `Model.ask`."""
        check_limit(max_tokens)
        request: dict[str, Any] = {"model": self._model, "messages": check_messages(messages)}
        if tools:
            request["tools"] = [dict(tool) for tool in tools]
        encode(request)
        if max_tokens is not None:
            request["max_tokens"] = max_tokens

        from .threads import in_thread

        # Before the time runs: the import takes seconds.
        await in_thread(lambda: load_litellm(self.name), lambda: None)

        async def attempt(left: float) -> Reply | Failure:
            return await in_thread(lambda: self._attempt(request, left), lambda: None)

        return await ask_until_answered(
            attempt, name=self.name, retries=self._retries, timeout=timeout, on_retry=on_retry
        )

    async def aclose(self) -> None:
        """See `Model.aclose`. LiteLLM keeps its connections to itself."""

    def _attempt(self, request: dict[str, Any], left: float) -> Reply | Failure:
        """Send it once. In a thread."""
        litellm = load_litellm(self.name)
        given: dict[str, Any] = {"timeout": left, "num_retries": 0, "max_retries": 0}
        if self._base_url is not None:
            given["api_base"] = self._base_url
        if self._key is not None:
            given["api_key"] = self._key.reveal()
        try:
            answer = litellm.completion(**request, **given)
        except Exception as error:  # noqa: BLE001 - its providers raise what they like
            return self._failed(error)
        return self._read(answer)

    def _read(self, answer: Any) -> Reply | Failure:
        from .parsing import Malformed, Reported, parse_value
        from .prices import cost_of

        try:
            reply, _ = parse_value(answer.model_dump(mode="json", warnings=False), self._model)
        except Malformed as wrong:
            return Failure(ModelError(f"The answer of {self._model} {wrong}.", retryable=wrong.again))
        except Reported as inner:
            return Failure(ModelError(f"{self._model} failed.", status=inner.status, retryable=inner.status >= 500))
        return reply._replace(cost=None if reply.usage is None else cost_of(self.name, reply.usage))

    def _failed(self, error: Exception) -> Failure:
        from .refusals import retry_after

        status = getattr(error, "status_code", None)
        status = status if isinstance(status, int) else None
        kind = type(error).__name__
        said = without_keys(" ".join(str(error).split()), self._key)
        said = said if len(said) <= 500 else f"{said[:500]}…"
        hint = None
        if status in (401, 403) or "api_key" in said.lower():
            hint = "Give api_key, or set the variable of this provider, such as $ANTHROPIC_API_KEY."
            status = status if status in (401, 403) else 401
        elif kind == "ContextWindowExceededError":
            hint = "Send less, or take a model with a longer context."
        elif "llm provider not provided" in said.lower():
            hint = "LiteLLM knows no such provider; see https://docs.litellm.ai/docs/providers."
        again = kind in ("Timeout", "APIConnectionError") or status in (408, 409, 429) or (status or 0) >= 500
        again = again and hint is None
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        wait = retry_after({str(name).lower(): str(value) for name, value in dict(headers).items()}, time.time())
        message = f"LiteLLM could not ask {self._model} ({kind}): {said}"
        return Failure(ModelError(message, hint=hint, status=status, retryable=again), wait if again else None)


def without_keys(text: str, key: Key | None) -> str:
    """A text without the key, and without those that LiteLLM finds in the environment by itself."""
    hidden = key.hidden_in(text) if key is not None else text
    for name, value in os.environ.items():
        if len(value) >= 8 and name.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")):
            hidden = hidden.replace(value, "***")
    return hidden


def load_litellm(name: str) -> Any:
    """The module, imported once, so that it fetches nothing, reads no .env, tells nobody and prints nothing.

    Raises: ModelError.
    """
    global _litellm  # noqa: PLW0603 - a cache
    with _loading:
        if _litellm is None:
            find_litellm(name)
            _litellm = _import(name)
        return _litellm


def _import(name: str) -> Any:
    import logging
    import warnings

    # It would otherwise call out at its import, and put a .env file of this directory into the environment.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm

            # Pydantic builds its classes at first use, and warns about them then.
            litellm.ModelResponse()
    except ImportError as error:
        raise ModelError(
            f"{name!r} needs LiteLLM, which cannot be imported: {error}", hint="pip install 'atoll[litellm]'"
        ) from None
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    for logger in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return litellm
