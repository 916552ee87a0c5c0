"""The server over streamable HTTP: a thread a connection, and nothing that is not needed for `POST /mcp`."""

from __future__ import annotations

import os
import select
import signal
import socket
from _thread import allocate_lock, start_new_thread
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from . import exchange as exchanges, revisions
from .calls import Call
from .encoding import error_line
from .exchange import Exchange
from .gate import Gate
from .httpwire import Broken, Gone, Head, Wire, body_length, response
from .messages import MAX_MESSAGE, Unreadable, is_id, parsed
from .server import MAX_RUNNING, Conversation, Server, report, unsupported

PATH = "/mcp"
MAX_CONNECTIONS = 128
MAX_CLIENTS = 1000
_IDLE = 75.0
_FAREWELL = 1.5


class HttpServer:
    """Listens from the moment it is made; `serve` serves until a signal comes."""

    def __init__(self, server: Server, gate: Gate, port: int) -> None:
        self._server = server
        self._gate = gate
        family = socket.AF_INET6 if ":" in gate.host else socket.AF_INET
        self._listener = socket.create_server((gate.host, port), family=family, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._clients: OrderedDict[str, Conversation] = OrderedDict()
        self._calls: set[Call] = set()
        self._idle: dict[Wire, float] = {}
        self._open = 0
        self._lock = allocate_lock()

    def serve(self) -> None:
        heard, struck = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(struck, warn_on_full_buffer=False)
        self._listener.setblocking(False)
        poller = select.poll()
        poller.register(heard, select.POLLIN)
        poller.register(self._listener, select.POLLIN)
        while not any(fd == heard for fd, _ in poller.poll()):
            self._accept()
        self._listener.close()
        self._end()

    def _end(self) -> None:
        """Cancel what runs, and give it a moment to be ended."""
        for call in list(self._calls):
            call.cancel()
        until = monotonic() + _FAREWELL
        while self._calls and monotonic() < until:
            select.poll().poll(5)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            # It was gone before we came; or there are no descriptors left, and looking again at once would not help.
            select.poll().poll(20)
            return
        wire = Wire(sock)
        with self._lock:
            full = self._open >= MAX_CONNECTIONS
            oldest = min(self._idle, key=lambda each: self._idle[each], default=None) if full else None
            if oldest is not None:
                del self._idle[oldest]
            if full and oldest is None:
                wire.close()
                return
            self._open += 1
        if oldest is not None:
            _hang_up(oldest)
        start_new_thread(self._connection, (wire,))

    def _connection(self, wire: Wire) -> None:
        try:
            while self._request(wire):
                pass
        except (Gone, TimeoutError):
            pass
        except BaseException as error:  # noqa: BLE001  # one connection's trouble is no other's
            report(error)
        finally:
            with self._lock:
                self._idle.pop(wire, None)
                self._open -= 1
            wire.close()

    def _request(self, wire: Wire) -> bool:
        """Serve one request; whether another may follow on this connection. Raises Gone."""
        with self._lock:
            self._idle[wire] = monotonic()
        try:
            head = wire.read_head(_IDLE)
            with self._lock:
                self._idle.pop(wire, None)
            return head is not None and self._serve(wire, head)
        except Broken as error:
            with self._lock:
                self._idle[wire] = 0.0  # who was refused is the first to go
            body = error_line(None, revisions.INVALID_REQUEST, error.message).rstrip(b"\n")
            fields = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
            wire.send(response(error.status, body, fields, keep=False))
            wire.linger()
            return False

    def _serve(self, wire: Wire, head: Head) -> bool:
        # All that can be refused is refused before a body is read.
        origin = self._gate.check_names(head)
        fields: dict[str, str] = {}
        if origin is not None:
            fields = {"Access-Control-Allow-Origin": origin, "Vary": "Origin",
                      "Access-Control-Expose-Headers": "Mcp-Session-Id"}  # fmt: skip
            if head.method == "OPTIONS":
                wire.send(response(204, b"", fields | _PREFLIGHT, keep=False))
                return False
        self._gate.check_token(head)
        if head.path != PATH:
            raise Broken(404, f"There is only {PATH}.")
        if head.method not in ("POST", "DELETE"):
            wire.send(response(405, b"", fields | {"Allow": "POST, DELETE"}, keep=False))
            return False
        body = wire.read_body(head, body_length(head, MAX_MESSAGE))
        talk = Exchange(wire, head, fields)
        if head.method == "DELETE":
            self._delete(talk)
        else:
            self._post(talk, body)
        return head.keep

    def _delete(self, exchange: Exchange) -> None:
        with self._lock:
            ended = self._clients.pop(exchange.head.fields.get("mcp-session-id", ""), None)
        if ended is not None:
            ended.cancel_all()
        exchange.plain(404 if ended is None else 204)

    def _post(self, exchange: Exchange, body: bytes) -> None:
        fields = exchange.head.fields
        if fields.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Broken(415, "The body is not declared as application/json.")
        accepted = fields.get("accept", "*/*")
        if not any(kind in accepted for kind in ("application/json", "application/*", "*/*")):
            raise Broken(406, "The client does not accept application/json.")
        version = fields.get("mcp-protocol-version")
        if version in revisions.STATELESS:
            exchanges.stateless(self._server, exchange, body, self._track)
        elif version is not None and version not in revisions.HANDSHAKE:
            error = unsupported(version)
            exchange.answer(error_line(_id_in(body), error.code, error.message, error.data), 400)
        else:
            self._post_lasting(exchange, body)

    def _post_lasting(self, exchange: Exchange, body: bytes) -> None:
        """A message of a revision that begins with `initialize`."""
        try:
            message = parsed(body)
        except Unreadable as error:
            exchange.answer(error_line(None, error.code, error.message), 400)
            return
        if _is_stateless(message):
            exchanges.stateless(self._server, exchange, body, self._track)  # which says what its header lacks
            return
        if isinstance(message, dict) and message.get("method") == "initialize":
            talk = Conversation()
            exchange.fields["Mcp-Session-Id"] = self._remember(talk)
        else:
            id = exchange.head.fields.get("mcp-session-id")
            if id is None:
                raise Broken(400, "There is no Mcp-Session-Id; send initialize first.")
            with self._lock:
                known = self._clients.get(id)
                if known is not None:
                    self._clients.move_to_end(id)
            if known is None:
                raise Broken(404, "This Mcp-Session-Id is not known any more; send initialize again.")
            talk = known
        exchanges.lasting(self._server, talk, exchange, message, self._track)

    def _remember(self, talk: Conversation) -> str:
        id = os.urandom(24).hex()
        with self._lock:
            self._clients[id] = talk
            forgotten = self._clients.popitem(last=False)[1] if len(self._clients) > MAX_CLIENTS else None
        if forgotten is not None:
            forgotten.cancel_all()
        return id

    @contextmanager
    def _track(self, call: Call) -> Iterator[None]:
        """Count a call while it runs. Raises Broken when there are too many."""
        with self._lock:
            if len(self._calls) >= MAX_RUNNING:
                raise Broken(503, f"{MAX_RUNNING} calls run already; try again later.")
            self._calls.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.discard(call)


_PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, "
    "Mcp-Method, Mcp-Name",
    "Access-Control-Max-Age": "600",
}


def _hang_up(wire: Wire) -> None:
    try:
        wire.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has gone by itself


def _id_in(body: bytes) -> str | int | None:
    try:
        message = parsed(body)
    except Unreadable:
        return None
    id = message.get("id") if isinstance(message, dict) else None
    return id if is_id(id) else None


def _is_stateless(message: Any) -> bool:
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and revisions.VERSION_KEY in meta
