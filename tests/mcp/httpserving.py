"""`atoll mcp-serve --http` as a process, and requests to it byte by byte."""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import uuid

from tests.mcp.lineclient import HELLO, sweep

TOKEN = "a-token-for-these-tests"


class HttpProcess:
    """A server on a port of its own."""

    def __init__(self, *options, space=None, token=TOKEN, destroy=True, host="127.0.0.1"):
        self.space = space or f"test-{uuid.uuid4().hex[:12]}"
        self.token = token
        self._destroy = destroy
        chosen = ["--token", token] if token else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "atoll", "mcp-serve", "--http", f"{host}:0", "--space", self.space, *chosen,
             *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )  # fmt: skip
        self.greeting = self._line()
        self.port = int(re.search(r":(\d+)/mcp", self.greeting)[1])
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.session = None

    def _line(self):
        assert select.select([self.process.stderr], [], [], 60)[0], "the server does not start"
        return self.process.stderr.readline().decode()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, data):
        """All that comes back for these bytes, until the server closes the connection."""
        with self.connect() as sock:
            sock.sendall(data)
            return everything(sock)

    def post(self, message, **fields):
        """Status, header fields and body for one message."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.send("POST", body, **fields)

    def send(self, method, body=b"", path="/mcp", **fields):
        answer = self.raw(self.request(method, body, path, **fields))
        return parts(answer)

    def request(self, method="POST", body=b"", path="/mcp", **fields):
        chosen = {
            "Host": f"127.0.0.1:{self.port}",
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        if self.session:
            chosen["Mcp-Session-Id"] = self.session
        chosen |= {name.replace("_", "-"): value for name, value in fields.items()}
        lines = [f"{name}: {value}" for name, value in chosen.items() if value is not None]
        return f"{method} {path} HTTP/1.1\r\n".encode() + "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def hello(self, revision="2025-06-18"):
        status, fields, body = self.post(call("initialize", {**HELLO, "protocolVersion": revision}))
        assert status == 200, body
        self.session = fields["mcp-session-id"]
        return json.loads(body)["result"]

    def tool(self, name, /, **arguments):
        status, _, body = self.post(call("tools/call", {"name": name, "arguments": arguments}))
        assert status == 200, body
        return json.loads(body)["result"]

    def close(self):
        if self.process.stderr.closed:
            return None
        self.process.terminate()
        code = self.process.wait(10)
        rest = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        if self._destroy:
            sweep(self.space)
        return code, rest

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def everything(sock):
    answer = b""
    while chunk := sock.recv(1 << 16):
        answer += chunk
    return answer


def call(method, params=None, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def parts(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    return int(line.split()[1]), fields, body
