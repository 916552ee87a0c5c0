"""What a server that does not answer as asked means, in a sentence, and whether to ask it again. Pure.

What servers say is not trusted: it is cut, and cleaned of the key and of what a terminal would obey.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ModelError
from .providers import meant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .endpoint import Endpoint

_AGAIN = {408, 409, 425, 429}
_NEVER = {501, 505}
_TOO_LONG = (
    "context length", "context window", "context_length", "maximum context", "prompt is too long", "too many tokens",
    "input is too long", "exceeds the maximum number of tokens",
)  # fmt: skip
_UNPAID = (b"insufficient_quota", b"insufficient balance", b"insufficient credits", b"exceeded your current quota")


class Failure(NamedTuple):
    """A request that was in vain. `wait` is how long (seconds) the server asks to wait; `free` says that to send it
    again at once is no new try: the request was changed, or never arrived."""

    error: ModelError
    wait: float | None = None
    free: bool = False


def refusal(status: int, headers: Mapping[str, str], body: bytes, endpoint: Endpoint, now: float) -> Failure:
    """What an HTTP status other than 200 means. `now` is seconds since the epoch."""
    said = spoken(body, endpoint)
    told = f" It says: {said}" if said else ""
    host, lower = endpoint.address.netloc, said.lower()
    if 300 <= status < 400:
        target = clean(headers.get("location", ""), endpoint) or "nowhere"
        message = f"{host} redirects to {target}, and a key must not follow."
        return Failure(ModelError(message, hint="Set base_url to where it leads, if you trust it.", status=status))
    if status in (401, 403):
        return Failure(ModelError(f"{host} refused the key (HTTP {status}).{told}", hint=_key(endpoint), status=status))
    if status == 402 or (status == 429 and any(words in body[:5000].lower() for words in _UNPAID)):
        message = f"The account at {host} has no credit left (HTTP {status}).{told}"
        return Failure(ModelError(message, hint="Add credit, or use another key.", status=status))
    if status in (400, 413, 422) and any(words in lower for words in _TOO_LONG):
        message = f"The conversation is too long for {endpoint.model} (HTTP {status}).{told}"
        return Failure(ModelError(message, hint="Send less, or take a model with a longer context.", status=status))
    if status == 404:
        message = (
            f"{host} has no model {endpoint.model!r}, or nothing at {endpoint.address.path or '/'} (HTTP 404).{told}"
        )
        return Failure(ModelError(message, hint=_place(endpoint), status=status))
    again = status in _AGAIN or (status >= 500 and status not in _NEVER)
    kinds = {429: f"{host} has had too many requests", 408: f"{host} waited too long for the request"}
    what = kinds.get(status, f"{host} has failed" if status >= 500 else f"{host} refused the request")
    error = ModelError(f"{what} (HTTP {status}).{told}", status=status, retryable=again)
    return Failure(error, retry_after(headers, now) if again else None)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server asks to wait, from `Retry-After-Ms` or `Retry-After` (seconds or a date); None for
    nothing, or nothing that can be read."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, TypeError, OverflowError, IndexError):
        return None


def spoken(body: bytes, endpoint: Endpoint) -> str:
    """What an error says for people, or "" when it says nothing of the kind."""
    try:
        value = json.loads(body[:1_000_000])
    except (ValueError, RecursionError):
        text = body[:2000].decode("utf-8", "replace").strip()
        # A page of HTML says less than its status.
        return "" if text.startswith("<") else clean(text, endpoint)
    return clean(_message(value), endpoint)


def rejected_parameter(body: bytes) -> str:
    """The parameter that an error names, or everything that it says, to look for a name in."""
    try:
        value = json.loads(body[:1_000_000])
    except (ValueError, RecursionError):
        return ""
    error = value.get("error") if isinstance(value, dict) else None
    named = error.get("param") if isinstance(error, dict) else None
    return named if isinstance(named, str) and named else _message(value)[:2000]


def clean(text: str, endpoint: Endpoint, longest: int = 500) -> str:
    """A text of a server, for a terminal: one line, no control characters, no key, cut with an ellipsis."""
    hidden = endpoint.key.hidden_in(text) if endpoint.key is not None else text
    line = "".join(letter if letter.isprintable() else " " for letter in hidden[: longest * 4])
    line = " ".join(line.split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def _message(value: Any) -> str:
    for _ in range(4):
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            value = next((value[name] for name in ("error", "message", "detail", "msg") if value.get(name)), None)
            continue
        else:
            break
    return value if isinstance(value, str) else ""


def _key(endpoint: Endpoint) -> str:
    variable = endpoint.owner.key if endpoint.owner is not None and endpoint.owner.key else "ATOLL_API_KEY"
    if endpoint.key is None:
        return f"No key was sent: set ${variable}, or give api_key."
    return f"The key was that of {endpoint.key.source}; is it the right one, and may it use {endpoint.model!r}?"


def _place(endpoint: Endpoint) -> str:
    if endpoint.owner is not None and endpoint.owner.key is not None:
        other = meant(endpoint.model) if endpoint.owner.name == "openai" else None
        if other is not None:
            return f"Did you mean {other!r}? A name without a provider is OpenAI's."
        return f"Look up the name of the model at {endpoint.owner.name}; before the first slash stands the provider."
    ends = "" if endpoint.address.path.endswith("v1") else " Most base URLs end in /v1; this one does not."
    return f"Look up how the server calls its models, at {endpoint.address}/models.{ends}"
