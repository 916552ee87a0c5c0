"""A client that sends and reads lines, for what the real client would never send."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid

from atoll import Sandbox, Snapshots

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "lines", "version": "1"}}
PATIENCE = 60.0


class LineClient:
    """`atoll mcp-serve` and the other end of its pipes."""

    def __init__(self, *options, space=None, hello=HELLO):
        self.space = space or f"test-{uuid.uuid4().hex[:12]}"
        self.options = options
        self.process = subprocess.Popen(
            [sys.executable, "-m", "atoll", "mcp-serve", "--space", self.space, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._number = 0
        self._buffer = b""
        self._early = []
        self.notes = []
        if hello:
            self.hello = self.ask("initialize", hello)["result"]
            self.tell("notifications/initialized")

    def write(self, data):
        self.process.stdin.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

    def tell(self, method, params=None):
        self.write({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def begin(self, method, params=None, id=None):
        if id is None:
            self._number += 1
            id = self._number
        self.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
        return id

    def begin_tool(self, name, /, _meta=None, **arguments):
        params = {"name": name, "arguments": arguments}
        if _meta:
            params["_meta"] = _meta
        return self.begin("tools/call", params)

    def read(self, timeout=PATIENCE):
        """The next message, whatever it is."""
        until = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError("the server says nothing")
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError(self.process.stderr.read().decode())
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def answer(self, id, timeout=PATIENCE):
        """The answer to a request; what comes before it is kept."""
        for message in self._early:
            if message.get("id") == id:
                self._early.remove(message)
                return message
        while True:
            message = self.read(timeout)
            if "method" in message:
                self.notes.append(message)
            elif message.get("id") == id:
                return message
            else:
                self._early.append(message)

    def ask(self, method, params=None, id=None):
        return self.answer(self.begin(method, params, id))

    def tool(self, name, /, **arguments):
        """What a tool gives; one that fails is an error here."""
        answer = self.answer(self.begin_tool(name, **arguments))
        result = answer["result"]
        assert not result.get("isError"), result["content"]
        return result

    def data(self, name, /, **arguments):
        return self.tool(name, **arguments)["structuredContent"]

    def refusal(self, name, /, **arguments):
        """The text of a tool that fails."""
        result = self.answer(self.begin_tool(name, **arguments))["result"]
        assert result["isError"] is True
        assert "structuredContent" not in result
        return result["content"][0]["text"]

    def sandbox(self, session="default"):
        return Sandbox.find({"atoll.mcp": session, "atoll.mcp.space": self.space})

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self, timeout=10):
        """Close its input; the exit code."""
        self.process.stdin.close()
        return self.process.wait(timeout)

    def close(self, *, destroy=True):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
        if destroy:
            sweep(self.space)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def sweep(space):
    """Destroy every session of a space, with its snapshots."""
    for info in Sandbox.list({"atoll.mcp.space": space}):
        if info.status == "gone":
            continue
        for kept in Snapshots(info.driver).list(sandbox=info.id):
            Snapshots(info.driver).delete(kept.name)
        Sandbox.connect(info.id).destroy()
