"""What every model takes and gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Usage(NamedTuple):
    """Tokens as the server counted them; `cached_tokens` are those of the prompt that it had already."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class ToolCall(NamedTuple):
    """`arguments` is the JSON text as the model wrote it, and may be malformed."""

    id: str
    name: str
    arguments: str


class Reply(NamedTuple):
    """What a model answered.

    `text` is "" where there is none. `finish` is "stop", "length", "tool_calls", "content_filter", or another word of
    the server. `usage` is None where the server did not say, `cost` (dollars) None where it is not known. `model` is
    what the server says that it is. `attempts` is how often the request was sent.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: str
    usage: Usage | None
    model: str
    cost: float | None
    reasoning: str | None = None
    refusal: str | None = None
    attempts: int = 1

    def to_json(self) -> dict[str, Any]:
        """The same as plain dicts and lists."""
        return {
            **self._asdict(),
            "tool_calls": [call._asdict() for call in self.tool_calls],
            "usage": self.usage._asdict() if self.usage is not None else None,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reply:
        """What `to_json` made, made a reply again. Keys of a later release are left out.

        Raises: KeyError or TypeError for something that no reply became.
        """
        known = {name: value[name] for name in cls._fields if name in value}
        usage = value["usage"]
        known["tool_calls"] = tuple(
            ToolCall(call["id"], call["name"], call["arguments"]) for call in value["tool_calls"]
        )
        known["usage"] = None if usage is None else Usage(**{name: usage[name] for name in Usage._fields})
        return cls(**known)


class Model(Protocol):
    """A model that can be asked, as often as you like and several times at once."""

    name: str

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        timeout: float | None = None,
        on_retry: Callable[[str], None] | None = None,
    ) -> Reply:
        """Send a conversation and wait for the reply.

        `timeout` (seconds) bounds the whole of it, retries too; without one each attempt is bounded. `on_retry` gets a
        sentence whenever the request is sent again.

        Raises: ModelError when the model refused or did not answer; `retryable` says whether to ask later may help.
        InvalidInput for messages that cannot be sent.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the connections. It may be asked again: it opens new ones."""
        ...
