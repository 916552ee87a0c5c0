"""What is done with one message, whichever way it came: the methods of MCP."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import Any

import atoll

from ..errors import AtollError, InvalidInput
from ..schema import fitting
from . import catalog, revisions
from .calls import Call, Cancelled
from .desk import Desk, Outcome, Progress, refused
from .encoding import encoded, error_line, progress_line, result_line
from .instructions import instructions
from .messages import is_id
from .ownground import leave_sources
from .pinned import pin
from .settings import Settings

MAX_RUNNING = 64
"""Calls at once; one more is refused, so that whoever reads messages always can."""

_INFO = {"name": "atoll", "title": "atoll sandboxes", "version": atoll.__version__}
_ABILITIES: dict[str, Any] = {"tools": {}}
_STAMP = encoded({revisions.SERVER_KEY: _INFO})

Send = Callable[[bytes], None]


class Refused(Exception):
    """An error of JSON-RPC, for a message that cannot be served."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Conversation:
    """What is known of one client: its revision, once it has said so, and which of its calls run."""

    def __init__(self) -> None:
        self.revision: str | None = None
        self.running: dict[str | int, Call] = {}
        self._lock = allocate_lock()

    def begin(self, id: str | int, call: Call) -> None:
        """Raises Refused for an id that is in use."""
        with self._lock:
            if id in self.running:
                raise Refused(revisions.INVALID_REQUEST, "A request with this id is still running.")
            self.running[id] = call

    def end(self, id: str | int) -> None:
        with self._lock:
            self.running.pop(id, None)

    def cancel(self, id: Any) -> None:
        call = self.running.get(id) if is_id(id) else None  # True is 1 to Python
        if call is not None:
            call.cancel()

    def cancel_all(self) -> None:
        for call in list(self.running.values()):
            call.cancel()


class Server:
    """The tools, and the sessions that they work on. One for all conversations."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ground = leave_sources(settings)
        self._pin = pin()
        self._sessions: Any = None
        self._schemas = catalog.schemas(settings)
        self._lists: dict[str, str] = {}
        self._lock = allocate_lock()

    @property
    def sessions(self) -> Any:
        """Imported with the first call: who only looks at the list of tools does not wait for it."""
        if self._sessions is None:
            from .sessions import Sessions

            with self._lock:
                if self._sessions is None:
                    self._sessions = Sessions(self.settings)
        return self._sessions

    def pace(self, message: dict[str, Any]) -> str:
        """Whether a request is over "at once", "maybe", or "later", so that somebody else should read meanwhile.

        Of "maybe" the call itself finds out: a cell in a known session takes a tenth of a millisecond, or hours.
        """
        if message["method"] != "tools/call":
            return "at once"
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if name == "echo":
            return "at once"
        if name != "execute_python" or self._sessions is None:
            return "later"
        arguments = params["arguments"] if params and isinstance(params.get("arguments"), dict) else {}
        return "maybe" if self._sessions.is_at_hand(arguments.get("session_id")) else "later"

    def notice(self, talk: Conversation, message: dict[str, Any]) -> None:
        """Take a notification. What is unknown means nothing to us, and is not answered."""
        if message.get("method") == "notifications/cancelled":
            params = message.get("params")
            if isinstance(params, dict):
                talk.cancel(params.get("requestId"))

    def answer(self, talk: Conversation, message: dict[str, Any], call: Call, send: Send) -> bytes | None:
        """The answer to a request whose id was checked, as a line; None when it was cancelled.

        Args:
            send: takes notifications that belong to it, whole.
        """
        id: str | int = message["id"]
        try:
            talk.begin(id, call)
        except Refused as error:
            # Not with its id: the client would take it for the answer to the other one.
            return error_line(None, error.code, error.message)
        try:
            with call:
                return result_line(id, self._result(talk, message, send))
        except Cancelled:
            return None
        except Refused as error:
            return error_line(id, error.code, error.message, error.data)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets an answer, and the server goes on
            report(error)
            return error_line(id, revisions.INTERNAL_ERROR, f"A mistake in atoll itself: {type(error).__name__}.")
        finally:
            talk.end(id)

    def _result(self, talk: Conversation, message: dict[str, Any], send: Send) -> str:
        method, params = message["method"], message.get("params")
        if params is None:
            params = {}
        if not isinstance(params, dict):
            raise Refused(revisions.INVALID_PARAMS, "params is no object.")
        meta = params.get("_meta")
        if meta is not None and not isinstance(meta, dict):
            raise Refused(revisions.INVALID_PARAMS, "params._meta is no object.")
        revision = revision_of(talk, method, meta)
        if method == "tools/call":
            return self._call(send, params, meta, revision)
        if method == "initialize" and revision not in revisions.STATELESS:
            return self._initialize(talk, params)
        if method == "tools/list":
            return self._list(params, revision)
        if method == "ping" and revision not in revisions.STATELESS:
            return "{}"
        if method == "server/discover":
            return self._discover()
        raise Refused(revisions.METHOD_NOT_FOUND, f"There is no method {method[:100]!r}.", method[:100])

    def _initialize(self, talk: Conversation, params: dict[str, Any]) -> str:
        if not isinstance(params.get("protocolVersion"), str):
            raise Refused(revisions.INVALID_PARAMS, "protocolVersion is missing.")
        talk.revision = revisions.negotiated(params["protocolVersion"])
        return encoded(
            {
                "protocolVersion": talk.revision,
                "capabilities": _ABILITIES,
                "serverInfo": _INFO if revisions.has_structure(talk.revision) else _plain_info(),
                "instructions": instructions(self.settings),
            }
        )

    def _discover(self) -> str:
        return encoded(
            {
                "resultType": "complete",
                "supportedVersions": [*revisions.HANDSHAKE, *revisions.STATELESS],
                "capabilities": _ABILITIES,
                "instructions": instructions(self.settings),
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {revisions.SERVER_KEY: _INFO},
            }
        )

    def _list(self, params: dict[str, Any], revision: str) -> str:
        if params.get("cursor") is not None:
            raise Refused(revisions.INVALID_PARAMS, "There is one page only; leave the cursor out.")
        if revision not in self._lists:
            listed: dict[str, Any] = {"tools": catalog.listing(self.settings, revision)}
            if revision in revisions.STATELESS:
                listed |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
                listed["_meta"] = {revisions.SERVER_KEY: _INFO}
            self._lists[revision] = encoded(listed)
        return self._lists[revision]

    def _call(self, send: Send, params: dict[str, Any], meta: dict[str, Any] | None, revision: str) -> str:
        name, arguments = params.get("name"), params.get("arguments")
        schema = self._schemas.get(name) if isinstance(name, str) else None
        if schema is None:
            raise Refused(revisions.INVALID_PARAMS, f"There is no tool {str(name)[:100]!r}; tools/list names them.")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise Refused(revisions.INVALID_PARAMS, "arguments is no object.")
        try:
            fitting(schema, arguments)
            done = self._run(send, str(name), arguments, meta)
        except AtollError as error:
            done = refused(str(error))
        return _shape(done, revision)

    def _run(self, send: Send, name: str, arguments: dict[str, Any], meta: dict[str, Any] | None) -> Outcome:
        progress = None
        token: Any = None if meta is None else meta.get("progressToken")
        if is_id(token):
            progress = Progress(lambda count, line: send(progress_line(token, count, line)))
        elif token is not None:
            raise Refused(revisions.INVALID_PARAMS, "The progressToken is neither a text nor a whole number.")
        if name == "echo":
            return _echo(arguments)
        try:
            return catalog.handler(name)(
                Desk(self.sessions, self.settings, self._pin, self.ground, progress), arguments
            )
        except AtollError as error:
            self._forget(arguments, error)
            raise

    def _forget(self, arguments: dict[str, Any], error: AtollError) -> None:
        from .sessions import DEFAULT, ended

        if ended(error):
            self.sessions.forget(arguments.get("session_id", DEFAULT))


def revision_of(talk: Conversation, method: str, meta: dict[str, Any] | None) -> str:
    """Which revision a request is of. Raises Refused for one that says so and is not known, or says only half."""
    if meta is None or revisions.VERSION_KEY not in meta:
        if method == "server/discover":
            raise Refused(revisions.INVALID_PARAMS, f"params._meta has no {revisions.VERSION_KEY}.")
        return talk.revision or revisions.NEWEST_HANDSHAKE
    asked = meta[revisions.VERSION_KEY]
    if not isinstance(asked, str):
        raise Refused(revisions.INVALID_PARAMS, f"{revisions.VERSION_KEY} is no text.")
    if revisions.ABILITIES_KEY not in meta:
        raise Refused(revisions.INVALID_PARAMS, f"params._meta has no {revisions.ABILITIES_KEY}.")
    if asked not in revisions.STATELESS:
        raise unsupported(asked)
    return asked


def unsupported(asked: str) -> Refused:
    data = {"supported": list(revisions.STATELESS), "requested": asked[:100]}
    return Refused(revisions.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def report(error: BaseException) -> None:
    """A mistake of ours, for whoever reads the server's log. Never on stdout."""
    import os
    import traceback

    text = "".join(traceback.format_exception(error)) if os.environ.get("ATOLL_DEBUG") else f"{error!r}\n"
    try:
        os.write(2, f"atoll mcp-serve: {text}".encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # nobody reads it


def _shape(done: Outcome, revision: str) -> str:
    result: dict[str, Any] = {"content": done.content}
    if done.structured is not None and revisions.has_structure(revision):
        result["structuredContent"] = done.structured
    if done.failed:
        result["isError"] = True
    return _stamped(encoded(result), revision)


def _stamped(result: str, revision: str) -> str:
    if revision in revisions.STATELESS:
        return f'{result[:-1]},"resultType":"complete","_meta":{_STAMP}}}'
    return result


def _plain_info() -> dict[str, str]:
    return {"name": _INFO["name"], "version": _INFO["version"]}


def _echo(arguments: dict[str, Any]) -> Outcome:
    text = arguments.get("text", "")
    if not isinstance(text, str):
        raise InvalidInput("text is no text.")
    return Outcome([{"type": "text", "text": text}], {"text": text})
