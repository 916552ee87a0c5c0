"""A model that plays a script: an OpenAI-compatible server on the loopback, for tests and demonstrations.

    with PlayedModel([calls(("run_code", {"code": "6 * 7"})), says("It is 42.")]) as server:
        model = atoll.models.load("played", base_url=server.url)
        ...
        server.requests[0].body["messages"]

From the command line it outlives whoever asks it, and its log can be read by anybody:

    python -m atoll.testing.playedmodel --script replies.json --port 8123 --log asked.jsonl

`playedscript` says what a script is, `playedreplies` what replies and faults there are.
"""

from __future__ import annotations

import _thread
import json
import socket
import threading
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from ..errors import InvalidInput
from .playedreplies import (
    Played,
    calls,
    completion,
    cut_off,
    drops,
    events,
    fails,
    huge,
    limited,
    malformed,
    raw,
    redirects,
    refuses,
    says,
    slow,
    streams,
)
from .playedscript import Chooser, Script, read_script, turn_of

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

__all__ = [
    "Asked", "Played", "PlayedModel", "calls", "cut_off", "drops", "fails", "huge", "limited", "malformed", "raw",
    "read_log", "redirects", "refuses", "says", "slow", "streams",
]  # fmt: skip


class Asked(NamedTuple):
    """A request as it came. `at` is seconds since the epoch, `turn` how many messages of the assistant it has,
    `connection` which of the connections that were made brought it."""

    number: int
    at: float
    path: str
    authorization: str | None
    turn: int
    connection: int
    headers: dict[str, str]
    body: Any


class PlayedModel:
    """A server that answers as its script says, from `start` to `stop`, or within `with`.

    `latency` is how long (seconds) each answer takes, `key` the only key it lets in, `log` a file that gets a line of
    JSON for each request before it is answered, `tls` makes it speak TLS. `requests` has all requests so far.

    Raises: InvalidInput for a script that is none, OSError for a port that is taken.
    """

    def __init__(
        self,
        script: Script,
        *,
        latency: float = 0.0,
        key: str | None = None,
        port: int = 0,
        log: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.requests: list[Asked] = []
        self.log = log
        self._chooser = Chooser(script)
        self._latency, self._key, self._port, self._tls = latency, key, port, tls
        self._arrived = threading.Condition()
        self._go = threading.Event()
        self._go.set()
        self._stopped = threading.Event()
        self._connections: set[socket.socket] = set()
        self._made = 0
        self._listener: socket.socket | None = None
        self._log_file: IO[str] | None = None

    @property
    def url(self) -> str:
        """What `base_url=` wants."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}/v1"

    def start(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self._port = self._listener.getsockname()[1]
        if self.log is not None:
            self._log_file = open(self.log, "a", encoding="utf-8")  # noqa: SIM115 - closed by stop
        threading.Thread(target=self._accept, args=[self._listener], daemon=True, name="played model").start()
        return self

    def stop(self) -> None:
        """Close everything at once; who waits for an answer gets none. Again it does nothing."""
        self._stopped.set()
        self._go.set()
        with self._arrived:
            connections = list(self._connections)
            self._arrived.notify_all()
        for one in [self._listener, *connections]:
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        if self._listener is not None:
            self._listener.close()
        with self._arrived:
            if self._log_file is not None:
                self._log_file.close()
                self._log_file = None

    def hold(self) -> None:
        """From now on requests arrive and are not answered until `go_on`."""
        self._go.clear()

    def go_on(self) -> None:
        self._go.set()

    def wait_for(self, count: int, timeout: float = 30) -> bool:
        """Wait until so many requests have come; False when the time is over first."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout)

    @property
    def open_connections(self) -> int:
        """How many clients are connected now."""
        with self._arrived:
            return len(self._connections)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._arrived:
                self._made += 1
                self._connections.add(connection)
                number = self._made
            # A Thread would be waited for until it runs, by all who come after.
            _thread.start_new_thread(self._serve, (connection, number))

    def _serve(self, connection: socket.socket, number: int) -> None:
        talking = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                talking = self._tls.wrap_socket(connection, server_side=True)
                with self._arrived:
                    self._connections.discard(connection)
                    self._connections.add(talking)
            with talking.makefile("rb") as lines:
                while not self._stopped.is_set() and self._exchange(talking, lines, number):
                    pass
        except (OSError, ValueError):
            pass  # the client has gone, or spoke no HTTP
        finally:
            with self._arrived:
                self._connections -= {connection, talking}
            talking.close()

    def _exchange(self, connection: socket.socket, lines: IO[bytes], number: int) -> bool:
        """One request and its answer; whether another may follow."""
        first = lines.readline(65536).decode("latin-1").split()
        if len(first) != 3:
            return False
        headers = {}
        while (line := lines.readline(65536).strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        text = lines.read(int(headers.get("content-length", "0")))
        try:
            body = json.loads(text) if text else None
        except ValueError:
            body = {"not JSON": text.decode("utf-8", "replace")}
        path = first[1]
        reply = self._answer(self._note(path, headers, body, number), path, body)
        self._go.wait()
        if delay := reply.get("delay", self._latency):
            self._stopped.wait(delay)
        if reply.get("drop") or self._stopped.is_set():
            return False
        head, content = _response(reply, body)
        cut = reply.get("cut")
        connection.sendall(head + (content if cut is None else content[:cut]))
        return cut is None and headers.get("connection", "").lower() != "close"

    def _note(self, path: str, headers: dict[str, str], body: Any, connection: int) -> Asked:
        with self._arrived:
            number = len(self.requests)
            key = headers.get("authorization")
            asked = Asked(number, time.time(), path, key, turn_of(body), connection, headers, body)
            self.requests.append(asked)
            if self._log_file is not None:
                self._log_file.write(json.dumps(asked._asdict()) + "\n")
                self._log_file.flush()
            self._arrived.notify_all()
        return asked

    def _answer(self, asked: Asked, path: str, body: Any) -> Played:
        if self._key is not None and asked.authorization != f"Bearer {self._key}":
            return fails(401, "Incorrect API key provided.", code="invalid_api_key")
        if path.endswith("/models"):
            return raw({"object": "list", "data": [{"id": "played", "object": "model"}]})
        if not path.endswith("/chat/completions"):
            return fails(404, f"There is no {path}.")
        if not isinstance(body, dict):
            return fails(400, "The request is no JSON object.")
        try:
            return self._chooser.choose(body)
        except Exception as error:  # noqa: BLE001 - a script's own mistake must reach whoever looks at the test
            return fails(400, f"The script failed: {type(error).__name__}: {error}")


def _response(reply: Played, request: Any) -> tuple[bytes, bytes]:
    kind = "application/json"
    if "body" in reply:
        text = reply["body"]
    elif "error" in reply:
        text = json.dumps({"error": reply["error"]})
    else:
        body = completion(reply, request, turn_of(request))
        if reply.get("stream") or (isinstance(request, dict) and request.get("stream")):
            text, kind = events(body), "text/event-stream"
        else:
            text = json.dumps(body)
    content = text.encode()
    headers = {"Content-Type": kind, "Content-Length": str(len(content)), **reply.get("headers", {})}
    lines = [f"HTTP/1.1 {reply.get('status', 200)} Played", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), content


def read_log(path: str) -> list[Asked]:
    """The requests in a log, which may be growing: a last line that is not whole yet is left out."""
    with open(path, encoding="utf-8") as file:
        return [Asked(**json.loads(line)) for line in file if line.endswith("\n")]


def main(arguments: list[str] | None = None) -> int:
    """Serve a script until the process is ended. The first line of output is the URL.

    Gives the exit code: 2 where it cannot be served, having said in a sentence why.
    """
    import argparse
    import sys

    parser = argparse.ArgumentParser(prog="playedmodel", description="An OpenAI-compatible server that plays a script.")
    parser.add_argument("--script", required=True, help="a JSON file: a list of replies, or rules")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--log", help="a file that gets a line of JSON for each request")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each answer takes")
    parser.add_argument("--key", help="the only API key it lets in")
    given = parser.parse_args(arguments)
    try:
        if not 0 <= given.port < 65536:
            raise InvalidInput(f"--port is {given.port}; give 0 for any that is free, or up to 65535.")
        if not 0 <= given.latency <= threading.TIMEOUT_MAX:
            raise InvalidInput(f"--latency is {given.latency}; give seconds, such as 0.5.")
        script = read_script(given.script)
        server = PlayedModel(script, latency=given.latency, key=given.key, port=given.port, log=given.log)
        _serve_until_ended(server)
    except InvalidInput as error:
        print(f"playedmodel: {error}", file=sys.stderr)  # noqa: T201 - it is a command
        return 2
    return 0


def _serve_until_ended(server: PlayedModel) -> None:
    try:
        try:
            server.start()
        except OSError as error:
            what = f"The log {error.filename} cannot be opened" if error.filename else "The port cannot be had"
            raise InvalidInput(f"{what}: {error.strerror}.") from error
        print(server.url, flush=True)  # noqa: T201 - it is a command
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
