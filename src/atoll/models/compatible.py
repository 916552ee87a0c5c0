"""The built-in client: any server that speaks OpenAI's chat completions."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, ModelError
from .contract import Reply
from .refusals import Failure, clean, refusal, rejected_parameter
from .retrying import ask_until_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..http.client import Answer, Client, Ticket
    from .endpoint import Endpoint

# The event loop ends a wait that is too long; the socket does only where no loop is left to do so.
_GRACE = 5.0
_LIMITS = ("max_tokens", "max_completion_tokens")


class Compatible:
    """A model behind an OpenAI-compatible URL. It may be used in several threads and event loops at once."""

    def __init__(self, name: str, endpoint: Endpoint, *, retries: int) -> None:
        self.name = name
        self._endpoint = endpoint
        self._retries = retries
        self._client: Client | None = None
        self._lock = threading.Lock()
        owner = endpoint.owner.name if endpoint.owner is not None else ""
        # OpenAI's reasoning models know only the new name, other servers often only the old one.
        self._limit = _LIMITS[1] if owner == "openai" else _LIMITS[0]
        self._rejected: set[str] = set()
        self._tells_cost = owner == "openrouter"

    def __repr__(self) -> str:
        return f"<model {self.name} at {self._endpoint.address}>"

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
        request: dict[str, Any] = {"model": self._endpoint.model, "messages": check_messages(messages)}
        if tools:
            request["tools"] = [dict(tool) for tool in tools]
        body = encode(request)

        # Before the time runs: the imports take a while.
        from ..http.client import Ticket
        from .threads import in_thread

        async def attempt(left: float) -> Reply | Failure:
            ticket = Ticket()
            return await in_thread(lambda: self._attempt(body, max_tokens, ticket, left), ticket.cancel)

        return await ask_until_answered(
            attempt, name=self.name, retries=self._retries, timeout=timeout, on_retry=on_retry
        )

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        if self._client is not None:
            self._client.close()

    def _attempt(self, body: bytes, max_tokens: int | None, ticket: Ticket, left: float) -> Reply | Failure:
        """Send it once. In a thread."""
        from ..http.client import MOST_BYTES, Client, Lost, TooLarge

        with self._lock:
            if self._client is None:
                self._client = Client(self._endpoint.address)
            client = self._client
        limit = self._limit
        if max_tokens is not None:
            body = body[:-1] + f', "{limit}": {max_tokens}}}'.encode()
        host = self._endpoint.address.netloc
        try:
            answer = client.post(
                f"{self._endpoint.address.path}/chat/completions", self._headers(), body, ticket, left + _GRACE
            )
        except Lost as lost:
            if lost.stale:
                client.close()
            here = lost.unreached and self._endpoint.address.is_loopback
            hint = "Is the server running there?" if here else None
            error = ModelError(f"No answer from {host}: {lost}", retryable=lost.again, hint=hint)
            return Failure(error, free=lost.stale)
        except TooLarge:
            return Failure(ModelError(f"The answer of {host} has more than {MOST_BYTES >> 20} MB and was not read."))
        if answer.status != 200:
            return self._refused(answer, limit)
        return self._read(answer)

    def _headers(self) -> dict[str, str]:
        from .. import __version__

        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        headers["User-Agent"] = f"atoll/{__version__}"
        if self._endpoint.key is not None:
            headers["Authorization"] = f"Bearer {self._endpoint.key.reveal()}"
        return headers

    def _refused(self, answer: Answer, limit: str) -> Failure:
        failure = refusal(answer.status, answer.headers, answer.body, self._endpoint, time.time())
        if answer.status in (400, 422) and limit in rejected_parameter(answer.body):
            self._rejected.add(limit)
            other = _LIMITS[1 - _LIMITS.index(limit)]
            if other not in self._rejected:
                self._limit = other
                message = f"{self._endpoint.address.netloc} does not take {limit}; asking with {other}."
                return Failure(ModelError(message, status=answer.status), free=True)
        return failure

    def _read(self, answer: Answer) -> Reply | Failure:
        from .parsing import Malformed, Reported, parse
        from .prices import cost_of

        host = self._endpoint.address.netloc
        encoding = answer.headers.get("content-encoding", "identity")
        if encoding not in ("identity", ""):
            return Failure(
                ModelError(f"{host} answered in the encoding {clean(encoding, self._endpoint, 20)!r}, unasked.")
            )
        try:
            reply, told = parse(answer.body, answer.headers.get("content-type", ""), self._endpoint.model)
        except Malformed as wrong:
            return Failure(ModelError(f"The answer of {host} {wrong}.", status=200, retryable=wrong.again))
        except Reported as inner:
            return refusal(inner.status, answer.headers, json.dumps(inner.value).encode(), self._endpoint, time.time())
        cost = told if self._tells_cost else None
        if cost is None and reply.usage is not None:
            cost = cost_of(self.name, reply.usage)
        return reply._replace(cost=cost)


def check_limit(value: object) -> None:
    """Raises: InvalidInput for a limit of tokens that is none."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidInput(f"max_tokens is a whole number above 0, not {value!r}.")


def check_messages(messages: object) -> list[dict[str, Any]]:
    """The messages as a list of dicts. Raises: InvalidInput."""
    if isinstance(messages, list | tuple) and messages and all(hasattr(one, "keys") for one in messages):
        return [dict(one) for one in messages]
    raise InvalidInput('messages is a list such as [{"role": "user", "content": "hi"}], with at least one.')


def encode(request: dict[str, Any]) -> bytes:
    """A request as bytes. Raises: InvalidInput for what JSON cannot hold."""
    try:
        return json.dumps(request, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The messages or tools cannot be written as JSON: {error}") from None
