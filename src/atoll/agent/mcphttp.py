"""An MCP server that is reached at a URL. Its answers are bounded, and its headers go to no other host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from .mcpguard import Guard, Said
from .mcpmessages import LONGEST, MOST_VALUES, is_crowded, marks

if TYPE_CHECKING:
    from ..config.servers import Server

_EVENTS = "text/event-stream"
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r\n", b"\r\r")
_LONGEST_END = max(map(len, _ENDS_OF_EVENTS))


@asynccontextmanager
async def http(server: Server, said: Said) -> AsyncGenerator[Any, None]:
    """The streams of its messages. A redirect is followed within the same origin only, by the SDK."""
    longest = max(server.timeout, server.start_timeout)
    timeout = httpx2.Timeout(min(30.0, longest), read=longest)
    async with create_mcp_http_client(dict(server.headers), timeout) as client:
        client.headers["Accept-Encoding"] = "identity"
        client.event_hooks = {"request": [], "response": [partial(_bound, said)]}
        transport = streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST)
        async with transport as (incoming, outgoing):
            yield Guard(said).around(incoming, outgoing)


async def _bound(said: Said, response: httpx2.Response) -> None:
    # A few bytes can stand for very many, so what is counted must be what there is.
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise _refusal(said, "it sent a compressed answer, which it was not asked for")
    if (response.charset_encoding or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise _refusal(said, "it sent an answer that is not in UTF-8")
    in_events = _EVENTS in response.headers.get("content-type", "").lower()
    response.stream = (_Events if in_events else _Whole)(response.stream, said)


def _refusal(said: Said, reason: str) -> httpx2.ReadError:
    # The SDK ends the connection for it, and tells nobody why.
    said.reason = reason
    return httpx2.ReadError(reason)


class _Whole(httpx2.AsyncByteStream):
    """One answer."""

    def __init__(self, stream: Any, said: Said) -> None:
        self._stream = stream
        self._said = said

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for chunk in self._stream:
            held += chunk
            self._check_size(held)
        self._check_values(bytes(held))
        yield bytes(held)

    def _check_size(self, held: bytearray) -> None:
        if len(held) > LONGEST:
            raise _refusal(self._said, f"it sent an answer of more than {LONGEST >> 20} MiB")

    def _check_values(self, data: bytes) -> None:
        if is_crowded(data):
            raise _refusal(self._said, f"it sent an answer with more than {MOST_VALUES} values")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Events(_Whole):
    """Answers one after the other, for as long as the server likes: each event is passed on when it is whole."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for chunk in self._stream:
            looked_at = max(0, len(held) - _LONGEST_END)
            held += chunk
            if end := _end_of_events(held, looked_at):
                self._check_events(bytes(held[:end]))
                yield bytes(held[:end])
                del held[:end]
            self._check_size(held)
        self._check_events(bytes(held))
        yield bytes(held)

    def _check_events(self, data: bytes) -> None:
        if marks(data) <= MOST_VALUES:
            return
        # Each by itself, and without comments: a quotation mark in those begins no string.
        for event in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
            lines = [line[len(b"data:") :] for line in event.split(b"\n") if line.startswith(b"data:")]
            self._check_values(b"\n".join(lines))


def _end_of_events(held: bytearray, start: int) -> int:
    return max((at + len(mark) for mark in _ENDS_OF_EVENTS if (at := held.rfind(mark, start)) >= 0), default=0)
