"""One POST: a message in, its answer out as JSON, or as a stream of events when there is more to tell."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from . import revisions
from .calls import Call
from .encoding import error_line
from .httpwire import Gone, Head, Wire, response
from .messages import MAX_BATCH, Unreadable, checked, parsed
from .server import Conversation, Refused, Server, unsupported

_EVERY = 15.0
"""Seconds between two signs of life on a stream, for proxies that close what is silent."""

_STATUS = {
    revisions.PARSE_ERROR: 400,
    revisions.INVALID_REQUEST: 400,
    revisions.INVALID_PARAMS: 400,
    revisions.HEADER_MISMATCH: 400,
    revisions.UNSUPPORTED_VERSION: 400,
    revisions.METHOD_NOT_FOUND: 404,
}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STILL_RUNNING = b"HTTP/1.1 102 Processing\r\n\r\n"
_CANCELLED = "The request was cancelled."


class Exchange:
    """What goes back on one request. Nothing is sent before it is clear in which form."""

    def __init__(self, wire: Wire, head: Head, fields: dict[str, str]) -> None:
        self.wire = wire
        self.head = head
        self.fields = fields
        self.streams = head.chunks and "text/event-stream" in head.fields.get("accept", "")
        self._begun = False

    def notify(self, line: bytes) -> None:
        """Send a message before the answer; dropped for a client that takes no stream. Raises Gone."""
        if self.streams:
            self._event(line)

    def tick(self) -> None:
        if self.streams:
            self._begin()
            self._chunk(b": still running\r\n\r\n")

    def probe(self) -> None:
        """Send what means nothing: who has gone answers with a reset, who only sends no more takes it."""
        if self.streams:
            self.tick()
        elif self.head.chunks:
            self.wire.send(_STILL_RUNNING)

    def answer(self, line: bytes, status: int = 200) -> None:
        if self._begun:
            self._event(line)
            self.wire.send(b"0\r\n\r\n")
        else:
            self.wire.send(response(status, line.rstrip(b"\n"), self.fields, keep=self.head.keep))

    def plain(self, status: int) -> None:
        self.wire.send(response(status, b"", self.fields, keep=self.head.keep))

    def _event(self, line: bytes) -> None:
        self._begin()
        self._chunk(b"event: message\r\ndata: " + line.rstrip(b"\n") + b"\r\n\r\n")

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Cache-Control: no-cache, no-transform",
                 "Transfer-Encoding: chunked", "X-Accel-Buffering: no", "X-Content-Type-Options: nosniff"]  # fmt: skip
        lines += [f"{name}: {value}" for name, value in self.fields.items()]
        if not self.head.keep:
            lines.append("Connection: close")
        self.wire.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def _chunk(self, data: bytes) -> None:
        self.wire.send(b"%x\r\n%s\r\n" % (len(data), data))


def stateless(server: Server, exchange: Exchange, body: bytes, track: Callable[[Call], Any]) -> None:
    """A request of a revision without sessions: all that matters is in it. Closing the connection cancels it."""
    id: str | int | None = None
    try:
        message = checked(parsed(body))
        id = message.get("id")
        version = exchange.head.fields.get("mcp-protocol-version", "")
        if "method" not in message:
            raise Refused(revisions.INVALID_REQUEST, "The body is neither a request nor a notification.")
        if "id" not in message:
            if version not in revisions.STATELESS:
                raise unsupported(version)
            exchange.plain(202)  # nothing that a client could notify us of has a meaning here
            return
        check_fields(exchange.head, message)
        line = _watched(server, exchange, message, track)
    except Unreadable as error:
        line = error_line(error.id, error.code, error.message)
    except Refused as error:
        line = error_line(id, error.code, error.message, error.data)
    if line is None:
        raise Gone  # only the end of the connection cancels these
    exchange.answer(line, status_of(line))


def _watched(server: Server, exchange: Exchange, message: dict[str, Any], track: Callable[[Call], Any]) -> bytes | None:
    """The answer; None when the client has gone meanwhile, and what it asked for was ended."""

    def to_the_end(send: Callable[..., None]) -> Callable[..., None]:
        def attempt(*arguments: Any) -> None:
            try:
                send(*arguments)
            except Gone:
                call.cancel()
                call.check()

        return attempt

    call = Call(exchange.wire.sock.fileno(), _EVERY, to_the_end(exchange.tick), probe=to_the_end(exchange.probe))
    with track(call):
        return server.answer(Conversation(), message, call, to_the_end(exchange.notify))


def lasting(server: Server, talk: Conversation, exchange: Exchange, message: Any, track: Callable[[Call], Any]) -> None:
    """A message of a client that has said hello. Losing the connection does not cancel it; a notification does."""
    if isinstance(message, list):
        _batch(server, talk, exchange, message, track)
        return
    try:
        checked(message)
    except Unreadable as error:
        exchange.answer(error_line(error.id, error.code, error.message), 400)
        return
    if "method" not in message or "id" not in message:
        if "method" in message:
            server.notice(talk, message)
        exchange.plain(202)
        return
    exchange.answer(_one(server, talk, exchange, message, track))


def _one(
    server: Server, talk: Conversation, exchange: Exchange, message: dict[str, Any], track: Callable[[Call], Any]
) -> bytes:
    call = Call(-1, _EVERY, _forgiving(exchange.tick))
    with track(call):
        line = server.answer(talk, message, call, _forgiving(exchange.notify))
    return line or error_line(message["id"], revisions.OVERLOADED, _CANCELLED)


def _forgiving(send: Callable[..., None]) -> Callable[..., None]:
    """The same for a client that may come back for other things: what it does not hear is no reason to stop."""

    def attempt(*arguments: Any) -> None:
        try:
            send(*arguments)
        except Gone:
            pass

    return attempt


def _batch(
    server: Server, talk: Conversation, exchange: Exchange, messages: list[Any], track: Callable[[Call], Any]
) -> None:
    if not messages or not revisions.has_batches(talk.revision or "") or len(messages) > MAX_BATCH:
        text = f"Send one message at a time, or at most {MAX_BATCH} where the revision has batches."
        exchange.answer(error_line(None, revisions.INVALID_REQUEST, text), 400)
        return
    answers = []
    exchange.streams = False
    for message in messages:
        try:
            checked(message)
        except Unreadable as error:
            answers.append(error_line(error.id, error.code, error.message))
            continue
        if "method" in message and "id" in message:
            answers.append(_one(server, talk, exchange, message, track))
        elif "method" in message:
            server.notice(talk, message)
    if answers:
        exchange.answer(b"[" + b",".join(answer.rstrip(b"\n") for answer in answers) + b"]")
    else:
        exchange.plain(202)


def check_fields(head: Head, message: dict[str, Any]) -> None:
    """Whether the header says what the body says: others on the way decide by the header. Raises Refused."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    if not isinstance(meta, dict) or revisions.VERSION_KEY not in meta:
        raise Refused(revisions.INVALID_PARAMS, f"params._meta has no {revisions.VERSION_KEY}.")
    if head.fields.get("mcp-protocol-version") != meta[revisions.VERSION_KEY]:
        raise _mismatch("MCP-Protocol-Version", "the revision")
    if head.fields.get("mcp-method") != message["method"]:
        raise _mismatch("Mcp-Method", "the method")
    key = _NAMED.get(message["method"])
    name = None if key is None else params.get(key)
    if name is not None and _decoded(head.fields.get("mcp-name")) != name:
        raise _mismatch("Mcp-Name", f"the {key}")


def _mismatch(field: str, what: str) -> Refused:
    return Refused(revisions.HEADER_MISMATCH, f"The header field {field} is not {what} in the body.")


def _decoded(value: str | None) -> str | None:
    """A header value, which comes as `=?base64?…?=` where it is no plain text."""
    match = None if value is None else re.fullmatch(r"=\?base64\?([A-Za-z0-9+/=]*)\?=", value)
    if match is None:
        return value
    try:
        return b64decode(match[1], validate=True).decode("utf-8")
    except ValueError:
        return None


def status_of(line: bytes) -> int:
    if b'"error":' not in line[:200]:
        return 200
    error = json.loads(line).get("error")
    return _STATUS.get(error["code"], 200) if error else 200
