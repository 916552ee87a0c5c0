"""The process that keeps a fake sandbox: it starts the guest, hands out streams to it, and ends it in time.

It runs on its own, with a directory that holds its socket `keeper` and the sandbox's files in `root`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NoReturn

from ..engine.removal import remove_tree
from . import fake_tree

_MESSAGE = 64 << 10


class Keeper:
    def __init__(self, job: dict[str, Any]) -> None:
        self._path: str = job["path"]
        self._job = job
        self._born = time.time()
        self._expires = self._born + job["lifetime"]
        self._maker: socket.socket | None = socket.socket(fileno=job["maker"])
        self._paused = False
        self._ending: socket.socket | None = None
        self._done = False
        self._keep_files = False

    def run(self) -> None:
        """From birth to end."""
        self._listen()
        self._start_guest()
        assert self._maker is not None  # noqa: S101  # set until it says "keep"
        self._poll = select.poll()
        self._clients: dict[int, socket.socket] = {}
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._control, select.POLLIN)
        self._add(self._maker)
        self._maker.send(b'{"ready":true}')
        while not self._done:
            self._turn()
        self._end()

    def _listen(self) -> None:
        os.chdir(self._path)
        if os.path.exists("keeper"):
            os.unlink("keeper")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("keeper")
        self._listener.listen(128)

    def _start_guest(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._guest = subprocess.Popen(
                fake_tree.guest_command(self._job["packages"], theirs.fileno(), self._job["config"]),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
            )

    def _add(self, client: socket.socket) -> None:
        self._clients[client.fileno()] = client
        self._poll.register(client, select.POLLIN)

    def _turn(self) -> None:
        wait = min(max(0.0, self._expires - time.time()), 86400.0)
        for fd, _ in self._poll.poll(wait * 1000 + 1):
            if fd == self._listener.fileno():
                self._add(self._listener.accept()[0])
            elif fd == self._control.fileno():
                self._keep_files = self._keep_files or (self._ending is None and _is_kept())
                self._done = True  # the guest has ended
            elif not self._done:
                self._serve(self._clients[fd])
        if time.time() >= self._expires:
            self._done = True

    def _serve(self, client: socket.socket) -> None:
        try:
            data = client.recv(_MESSAGE)
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        try:
            self._answer(client, json.loads(data))
        except OSError:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        self._poll.unregister(client)
        del self._clients[client.fileno()]
        if client is self._maker:
            # It leaves before "keep" and has not written the sandbox down: nobody knows of it, unless it was stopped.
            self._keep_files = _is_kept()
            self._done = True
        client.close()

    def _answer(self, client: socket.socket, request: dict[str, Any]) -> None:
        op = request["op"]
        if op == "open":
            self._open(client)
        elif op in ("destroy", "stop"):
            self._keep_files = op == "stop"
            self._ending, self._done = client, True
        else:
            client.send(json.dumps(self._change(op, request)).encode())

    def _change(self, op: str, request: dict[str, Any]) -> dict[str, Any]:
        if op == "keep":
            self._maker = None
        elif op == "checkpoint":
            _mark_kept()
        elif op == "lifetime":
            self._expires = time.time() + request["seconds"]
        elif op in ("pause", "resume"):
            self._paused = op == "pause"
            fake_tree.signal_all(self._guest.pid, signal.SIGSTOP if self._paused else signal.SIGCONT)
        processes = len(fake_tree.descendants(self._guest.pid))
        return {"paused": self._paused, "uptime": time.time() - self._born, "processes": processes}

    def _open(self, client: socket.socket) -> None:
        if self._paused:
            client.send(b'{"error":"The sandbox is paused."}')
            return
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            socket.send_fds(client, [b"{}"], [ours.fileno()])

    def _end(self) -> None:
        fake_tree.kill_all(os.getpid())
        self._guest.wait()
        if self._keep_files:
            # Before the end of the socket: who finds nobody there must find this.
            _mark_kept()
            os.unlink("keeper")
        else:
            os.chdir("/")
            self._listener.close()
            remove_tree(self._path)
        if self._ending is not None:
            self._ending.send(b"{}")


def _mark_kept() -> None:
    with open("stopped", "wb"):
        pass


def _is_kept() -> bool:
    return os.path.exists("stopped")


def main() -> NoReturn:
    """Take the job from the command line, leave the maker's family, and keep the sandbox."""
    job = json.loads(sys.argv[1])
    if os.fork():
        os._exit(0)
    os.setsid()
    fake_tree.adopt_orphans()
    code = 0
    try:
        Keeper(job).run()
    except OSError as error:
        code = 1
        socket.socket(fileno=os.dup(job["maker"])).send(json.dumps({"error": str(error)}).encode())
    finally:
        os._exit(code)
