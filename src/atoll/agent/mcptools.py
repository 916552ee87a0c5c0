"""The tools of MCP servers, for an agent. The servers live as long as the `async with`, and nothing of them longer."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..config.servers import Server, check_servers
from ..errors import AgentError, AtollError
from .mcpmessages import MOST_TOOLS
from .toolspec import Outcome, Tool

_MOST_PAGES = 100
_LONGEST_DESCRIPTION = 20_000
_LARGEST_SCHEMA = 200_000
# Of all tools of a server together. A model is told all of it, at each of its turns.
_LARGEST_LIST = 500_000
_LONGEST_NAME = 64
_GOODBYE = 5.0
_UNKNOWN = " Whether the tool ran is unknown."


@asynccontextmanager
async def attached(servers: Mapping[str, Mapping[str, Any]]) -> AsyncGenerator[list[Tool], None]:
    """Start or reach the servers, all at once; their tools, named `server__tool`.

    A tool that fails, or whose server has gone or does not answer in time, says so in its outcome.

    Raises:
        InvalidInput: a server cannot be as it is written.
        AgentError: a server does not start, does not answer, or lies about its tools; or the extra `mcp` is missing.
    """
    wanted = check_servers(servers, os.environ)
    if not wanted:
        yield []
        return
    _need_sdk()
    import anyio

    links = [_Link(server) for server in wanted]
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        try:
            for link in links:
                tasks.start_soon(link.live)
            yield _named([(link.name, tool) for link in links for tool in await link.tools()])
        except Exception as error:  # noqa: BLE001 - raised again below, as it is: a task group would wrap it
            failure = error
        finally:
            for link in links:
                link.leave()
    if failure is not None:
        raise failure


def _need_sdk() -> None:
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise AgentError(
            f"Tools of MCP servers need the package mcp, which cannot be imported: {error}.",
            hint="Run: pip install 'atoll[mcp]'",
        ) from None


class _Link:
    """The connection to one server, in a task of its own, so that whatever happens to it happens to no other."""

    def __init__(self, server: Server) -> None:
        import anyio

        from .mcpguard import Said

        self.name = server.name
        self._server = server
        self._said = Said()
        self._client: Any = None
        self._tools: list[Tool] = []
        self._problem: AgentError | None = None
        self._settled = anyio.Event()
        self._leaving = anyio.Event()
        self._scope = anyio.CancelScope()

    async def live(self) -> None:
        """Connect, list, and stay until `leave`."""
        try:
            with self._scope:
                await self._connected()
        except Exception as error:  # noqa: BLE001 - a broken connection is told by the calls that meet it
            self._fail(error)
        finally:
            self._client = None
            self._settled.set()

    def leave(self) -> None:
        self._leaving.set()
        if not self._settled.is_set():
            self._scope.cancel()

    async def tools(self) -> list[Tool]:
        """Under the names that they have there, when the server has told them. Raises AgentError."""
        await self._settled.wait()
        if self._problem is not None:
            raise self._problem
        return self._tools

    async def _connected(self) -> None:
        import anyio
        from mcp.client import Client
        from mcp_types import Implementation

        import atoll

        server = self._server
        info = Implementation(name="atoll", version=atoll.__version__)
        with anyio.fail_after(server.start_timeout) as limit:
            async with Client(self._transport(), client_info=info, cache=None) as client:
                self._tools = await self._listed(client)
                limit.deadline = float("inf")
                self._client = client
                self._settled.set()
                await self._leaving.wait()
                self._client = None
                # Saying goodbye may meet a server that no longer listens.
                limit.deadline = anyio.current_time() + _GOODBYE

    def _transport(self) -> Any:
        if self._server.command:
            from .mcpstdio import stdio

            return stdio(self._server, self._said)
        from .mcphttp import http

        return http(self._server, self._said)

    async def _listed(self, client: Any) -> list[Tool]:
        found: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for each in page.tools:
                if each.name in found:
                    raise AgentError(f"it lists the tool {each.name[:80]!r} twice")
                found[each.name] = each
            cursor = page.next_cursor
            if cursor is None or len(found) > MOST_TOOLS:
                break
        if cursor is not None or len(found) > MOST_TOOLS:
            raise AgentError(f"its list of tools does not end, or has more than {MOST_TOOLS}")
        tools = [self._tool(name, found[name]) for name in self._chosen(list(found))]
        size = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in tools)
        if size > _LARGEST_LIST:
            raise AgentError(
                f"its {len(tools)} tools take {size} characters to describe, and {_LARGEST_LIST} are the most that a "
                "model is told of one server; name those that are needed in `tools`"
            )
        return tools

    def _chosen(self, names: list[str]) -> list[str]:
        wanted = self._server.tools
        if wanted is None:
            return names
        for name in wanted:
            if name not in names:
                there = ", ".join(names[:50]) or "none"
                raise AgentError(f"it has no tool {name!r}, which `tools` asks for; there is {there}"[:2000])
        return list(dict.fromkeys(wanted))

    def _tool(self, name: str, listed: Any) -> Tool:
        schema = {"type": "object", **listed.input_schema}
        try:
            size = len(json.dumps(schema))
        except (ValueError, RecursionError):
            size = _LARGEST_SCHEMA + 1
        if schema["type"] != "object" or size > _LARGEST_SCHEMA:
            raise AgentError(f"the schema of its tool {name[:80]!r} is no object, or too large to be told to a model")
        description = listed.description or listed.title or name
        if len(description) > _LONGEST_DESCRIPTION:
            description = description[:_LONGEST_DESCRIPTION] + " [cut off]"
        hints = listed.annotations
        again = bool(hints and (hints.idempotent_hint or hints.read_only_hint))

        async def call(arguments: dict[str, Any]) -> Outcome:
            return await self._call(name, arguments)

        return Tool(name, description, schema, call, again)

    async def _call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        import anyio

        from .mcpanswers import outcome_of

        what, client = f"The MCP server {self._server.name!r}", self._client
        if client is None:
            return Outcome(self._without_secrets(f"{what} has gone{self._why()}."), failed=True)
        try:
            with anyio.fail_after(self._server.timeout):
                outcome = outcome_of(await client.call_tool(name, arguments))
        except TimeoutError:
            told = f"{what} did not answer within {self._server.timeout:g} s.{_UNKNOWN}"
            return Outcome(told, failed=True)
        except Exception as error:  # noqa: BLE001 - whatever a server does is the outcome of its tool
            told = f"{what} failed: {_sentence(error)}{self._why()}.{'' if _is_answer(error) else _UNKNOWN}"
            return Outcome(self._without_secrets(told), failed=True)
        return outcome._replace(text=self._without_secrets(outcome.text))

    def _fail(self, error: Exception) -> None:
        reason = _sentence(error)
        if isinstance(error, TimeoutError):
            reason = f"it did not tell its tools within {self._server.start_timeout:g} s"
        told = f"The MCP server {self._server.name!r} ({self._server.place}) cannot be used: {reason}{self._why()}."
        self._problem = AgentError(self._without_secrets(told))

    def _why(self) -> str:
        """What it did and said before, as far as that is known."""
        parts = [self._said.reason, f"it said: {self._said}" if str(self._said) else ""]
        return "".join(f"; {part}" for part in parts if part)

    def _without_secrets(self, text: str) -> str:
        for secret in self._server.secrets():
            text = text.replace(secret, "***")
        return text


def _is_answer(error: Exception) -> bool:
    """Whether the server itself said so, and not the connection to it."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code != CONNECTION_CLOSED


def _sentence(error: BaseException) -> str:
    """The first cause in a group, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, AtollError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    # What pydantic says of an answer that is none has many lines, and addresses of pages.
    said = " ".join(str(error)[:1000].split()).partition(" For further information")[0].rstrip(".")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _named(tools: list[tuple[str, Tool]]) -> list[Tool]:
    """Under names that a model can call and that stay the same from one start to the next, in whatever order they are
    listed.

    Raises:
        AgentError: two would have the same name, which takes one that was made for it.
    """
    plain = [f"{server}__{tool.name}" for server, tool in tools]
    often = Counter(plain)
    found: dict[str, Tool] = {}
    for (server, tool), name in zip(tools, plain, strict=True):
        legal = re.sub("[^a-zA-Z0-9_-]", "_", name)
        if legal != name or len(name) > _LONGEST_NAME or often[name] > 1:
            # Two that differ only in what had to go still differ. Of two with the same name none gets it: one server
            # must not pass for another.
            mark = hashlib.sha256(f"{server}\0{tool.name}".encode()).hexdigest()[:8]
            legal = f"{legal[: _LONGEST_NAME - 9]}_{mark}"
        if legal in found:
            raise AgentError(
                f"Two tools of MCP servers would be called {legal!r}, one of them {tool.name[:80]!r} of {server!r}: "
                "leave one of them out with `tools`."
            )
        found[legal] = tool._replace(name=legal)
    return list(found.values())
