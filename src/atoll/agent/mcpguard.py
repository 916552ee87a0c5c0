"""Between the SDK and an MCP server, whatever the transport: how much a server may say, and what of it is heard."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Self

import anyio
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from .mcpmessages import tame

# Requests of a server that it has not let us answer. Each is a task of the SDK.
_MOST_UNANSWERED = 100
# Whatever a server says within a minute. One that reports each step of its work says far less.
_MOST_MESSAGES = 20_000
_MINUTE = 60.0
_MOST_SAID = 2000


class Said:
    """The end of what a server wrote where no answers are, for the sentence that tells why it is gone."""

    def __init__(self) -> None:
        self._text = ""
        self.reason = ""
        self.all_said = anyio.Event()

    def add(self, data: bytes) -> None:
        # No character takes more than four bytes.
        self._text = (self._text + data[-4 * _MOST_SAID :].decode("utf-8", "replace"))[-_MOST_SAID:]

    def __str__(self) -> str:
        lines = deque((line.strip() for line in self._text.splitlines() if line.strip()), maxlen=8)
        return " | ".join(lines)


class Guard:
    """Counts what one server says. Above the bounds it says why in `said`, and the connection is to end."""

    def __init__(self, said: Said) -> None:
        self._said = said
        self._unanswered = 0
        self._messages = 0
        self._since = time.monotonic()

    def bears_more(self) -> bool:
        """Count one more message, of whatever kind."""
        now = time.monotonic()
        if now - self._since > _MINUTE:
            self._since, self._messages = now, 0
        self._messages += 1
        if self._messages > _MOST_MESSAGES:
            self._said.reason = f"it sent more than {_MOST_MESSAGES} messages within a minute"
        return self._messages <= _MOST_MESSAGES

    def asked(self) -> bool:
        """Count a request of the server; whether it may still be answered."""
        self._unanswered += 1
        if self._unanswered > _MOST_UNANSWERED:
            self._said.reason = f"it sent more than {_MOST_UNANSWERED} requests and did not take the answers"
        return self._unanswered <= _MOST_UNANSWERED

    def answered(self) -> None:
        self._unanswered -= 1

    def around(self, incoming: Any, outgoing: Any) -> tuple[Any, Any]:
        """The streams of a transport, guarded. They must hold nothing back: what is sent has left."""
        return _Incoming(incoming, self), _Outgoing(outgoing, self)


class _Stream:
    def __init__(self, inner: Any, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Incoming(_Stream):
    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> Any:
        """The next message that matters. Raises EndOfStream also when the server says too much."""
        while True:
            item = await self._inner.receive()
            if not self._guard.bears_more():
                raise anyio.EndOfStream
            message = getattr(item, "message", None)
            if isinstance(message, JSONRPCNotification):
                continue  # nobody here listens, and the SDK would start a task for each
            if isinstance(message, JSONRPCRequest) and not self._guard.asked():
                raise anyio.EndOfStream
            if isinstance(message, JSONRPCResponse):
                tame(message.result)
            return item


class _Outgoing(_Stream):
    async def send(self, item: Any) -> None:
        await self._inner.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._guard.answered()
