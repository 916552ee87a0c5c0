"""An MCP server that is reached at a URL. Its answers are bounded, and its headers go to no other host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

if TYPE_CHECKING:
    from ..config.servers import Server

LARGEST_ANSWER = 16 << 20


@asynccontextmanager
async def http(server: Server) -> AsyncGenerator[Any, None]:
    """The streams of its messages. A redirect is followed within the same origin only, by the SDK."""
    longest = max(server.timeout, server.start_timeout)
    timeout = httpx2.Timeout(min(30.0, longest), read=longest)
    async with create_mcp_http_client(dict(server.headers), timeout) as client:
        client.event_hooks = {"request": [], "response": [_bound]}
        transport = streamable_http_client(server.url, http_client=client, max_sse_event_size=LARGEST_ANSWER)
        async with transport as streams:
            yield streams


async def _bound(response: httpx2.Response) -> None:
    # The SDK bounds each event of a stream, and reads other answers whole.
    if "text/event-stream" not in response.headers.get("content-type", ""):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise httpx2.ReadError(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
