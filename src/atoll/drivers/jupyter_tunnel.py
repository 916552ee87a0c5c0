"""The near end of a tunnel through a Jupyter server: a stream of bytes to a guest that a kernel has started there.

A process of its own carries it, for as long as the steward lives. Messages are JSON, which every server understands.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import time
from typing import Any, NoReturn
from urllib.parse import quote

from ..engine import kernel
from ..engine.steward.wall import StartFailed
from . import jupyter_rest as rest
from .jupyter_socket import Closed, WebSocket

TARGET = "atoll"
_READY = 90.0
_ALIVE = 5.0
_SILENCE = 8.0
_DEAD = 90.0
_LAST_WORDS = 5.0
_CHUNK = 1 << 18
_HERE = os.path.dirname(os.path.abspath(__file__))


class Tunnel:
    """Connects to a kernel and has it start the guest, when it is made.

    Raises:
        StartFailed: it cannot be done; the kernel is the caller's to end.
    """

    def __init__(self, address: rest.Address, kernel_id: str, order: dict[str, Any]) -> None:
        self._session = os.urandom(16).hex()
        self._comm = os.urandom(16).hex()
        self._shown = address.shown
        self._address = address
        self._kernel = kernel_id
        self._until = time.monotonic() + _READY
        self.ended = False
        try:
            path = f"api/kernels/{quote(kernel_id, safe='')}/channels?session_id={self._session}"
            self._socket = WebSocket(address, path)
            self._await_kernel()
            self._furnish(order)
        except (Closed, OSError) as error:
            raise StartFailed(f"The Jupyter server at {self._shown} was lost: {error}.") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _await_kernel(self) -> None:
        """It may be starting still: what it does not hear it does not answer, so it is asked again."""
        while True:
            wanted = self._say("kernel_info_request", {})
            again = time.monotonic() + 2.0
            while (left := min(again, self._until) - time.monotonic()) > 0:
                if any(_answers(message, wanted, "kernel_info_reply") for message in self._messages(left)):
                    return
            if time.monotonic() >= self._until:
                raise StartFailed(f"The kernel of the Jupyter server at {self._shown} did not start in time.")

    def _furnish(self, order: dict[str, Any]) -> None:
        with open(os.path.join(_HERE, "jupyter_far.py"), encoding="utf-8") as file:
            text = file.read().replace("ORDER: dict[str, Any] = {}", f"ORDER = { ({**order, 'target': TARGET})!r}")
        code = f"exec({text!r}, {{'__name__': '_atoll_far'}})"
        request = {"code": code, "silent": True, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        wanted = self._say("execute_request", request)
        reply = self._await(lambda message: _answers(message, wanted, "execute_reply"))["content"]
        if reply.get("status") != "ok":
            reason = f"{reply.get('ename')}: {reply.get('evalue')}"
            raise StartFailed(f"The kernel of the Jupyter server cannot start a guest: {reason[:500]}.")
        self._say("comm_open", {"comm_id": self._comm, "target_name": TARGET, "data": {}})
        self._await(lambda message: "ready" in self._data(message))

    def _await(self, wanted: Any) -> dict[str, Any]:
        while (left := self._until - time.monotonic()) > 0:
            for message in self._messages(left):
                if wanted(message):
                    found: dict[str, Any] = message
                    return found
        raise StartFailed(f"The kernel of the Jupyter server at {self._shown} did not answer in time.")

    def _messages(self, seconds: float) -> list[dict[str, Any]]:
        """What has come within that time."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return []
        return self.receive()

    def receive(self) -> list[dict[str, Any]]:
        """What has come. Raises Closed, also for a kernel that has died."""
        messages = []
        for text in self._socket.receive():
            try:
                message = json.loads(text)
                state = message["content"].get("execution_state")
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # no message of a kernel
            if state in ("dead", "restarting"):
                raise Closed("the kernel that held the sandbox has died")
            messages.append(message)
        return messages

    def _data(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the far end says in a message, if it is from there."""
        content = message["content"]
        if message.get("msg_type", message.get("header", {}).get("msg_type")) != "comm_msg":
            return {}
        data = content.get("data")
        return data if content.get("comm_id") == self._comm and isinstance(data, dict) else {}

    def take(self) -> bytes:
        """Bytes that have come from the guest; sets `ended` at its end. Raises Closed."""
        taken = bytearray()
        for message in self.receive():
            data = self._data(message)
            if isinstance(data.get("bytes"), str):
                taken += base64.b64decode(data["bytes"])
            self.ended = self.ended or "end" in data
        return bytes(taken)

    def put(self, data: dict[str, Any]) -> None:
        """Say something to the far end. Raises OSError."""
        self._say("comm_msg", {"comm_id": self._comm, "data": data})

    def check(self) -> None:
        """Ask the server whether the kernel is there, which says nothing. Raises Closed."""
        try:
            rest.ask(self._address, "GET", f"kernels/{quote(self._kernel, safe='')}")
        except StartFailed as failed:
            raise Closed(f"the kernel that held the sandbox is gone ({failed})") from None

    def _say(self, kind: str, content: dict[str, Any]) -> str:
        name = os.urandom(16).hex()
        header = {"msg_id": name, "username": "atoll", "session": self._session, "msg_type": kind, "version": "5.3"}
        rest_of_it = {"parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
        self._socket.send(json.dumps({"header": header, "msg_id": name, "msg_type": kind, **rest_of_it}))
        return name


def _answers(message: dict[str, Any], wanted: str, kind: str) -> bool:
    known = message.get("msg_type", message.get("header", {}).get("msg_type"))
    return bool(known == kind and message.get("parent_header", {}).get("msg_id") == wanted)


def carry(tunnel: Tunnel, end: socket.socket, words: str) -> NoReturn:
    """In a process of its own: pass bytes both ways until either side ends; `words` is the file that says why."""
    try:
        kernel.close_from(3, (tunnel.fileno(), end.fileno()))
        _carry(tunnel, end)
    except (Closed, OSError) as error:
        with open(words, "w", encoding="utf-8") as file:
            file.write(str(error))
    finally:
        os._exit(0)


def _carry(tunnel: Tunnel, end: socket.socket) -> None:
    said = heard = time.monotonic()
    while not tunnel.ended:
        fds = [tunnel.fileno(), end.fileno()]
        ready = select.select(fds, [], [], max(0.0, said + _ALIVE - time.monotonic()))[0]
        if fds[0] in ready:
            heard = time.monotonic()
            end.sendall(tunnel.take())
        if fds[1] in ready:
            data = end.recv(_CHUNK)
            if not data:
                _part(tunnel)
                return
            said = time.monotonic()
            tunnel.put({"bytes": base64.b64encode(data).decode("ascii")})
        if time.monotonic() - said >= _ALIVE:
            said = time.monotonic()
            tunnel.put({"alive": True})
            # To what it is told it says at least that it is busy, and idle again.
            if said - heard > _SILENCE:
                tunnel.check()
        if time.monotonic() - heard > _DEAD:
            raise Closed("the kernel that held the sandbox has said nothing for a while")


def _part(tunnel: Tunnel) -> None:
    """Have the guest end, and wait for it a little."""
    tunnel.put({"stop": True})
    until = time.monotonic() + _LAST_WORDS
    while not tunnel.ended and select.select([tunnel], [], [], max(0.0, until - time.monotonic()))[0]:
        tunnel.take()
