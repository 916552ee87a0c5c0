"""A sandbox whose guest is a script: what it says is decided before anybody asks."""

from __future__ import annotations

import json
import socket
import threading
import time

from atoll import Sandbox
from atoll.client.record import Record
from atoll.driver import Driver
from atoll.io import BlockingIO, Stream
from atoll.store import Store
from atoll.types import Capability, Handle, Info, Spec
from atoll.wire import frames
from atoll.wire.frames import DATA, END, EVENT, HELLO, OPEN

HELLO_FRAME = frames.encode_json(0, HELLO, {"version": 1})


class ScriptedDriver(Driver):
    name = "scripted"
    summary = "a guest that says what it was told to say"
    capabilities = frozenset(Capability)

    def __init__(self, speak):
        super().__init__(BlockingIO())
        self.verdict = "running"
        self._speak = speak
        self._threads = []

    async def open_guest(self, handle):
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=self._play, args=(theirs,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return Stream(self.io, ours)

    def _play(self, sock):
        """Speak from one thread and listen from another, so that neither side ever waits for us."""
        with sock:
            listener = Listener(sock)
            try:
                self._speak(sock, listener)
            except OSError:
                pass  # the client hung up, as it should on what it heard
            listener.join()

    def join(self):
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    async def status(self, handle):
        return self.verdict

    async def create(self, spec, register, resume=None):
        raise NotImplementedError

    async def destroy(self, handle):
        raise NotImplementedError

    async def health(self):
        return []


class Listener(threading.Thread):
    """Takes all that the client says, and knows how much of it was input and how many operations it opened."""

    def __init__(self, sock):
        super().__init__(daemon=True)
        self._sock = sock
        self._changed = threading.Condition()
        self.opened = 0
        self.input = 0
        self.start()

    def run(self):
        decoder = frames.Decoder()
        try:
            while piece := self._sock.recv(1 << 16):
                for frame in decoder.feed(piece):
                    self._note(frame)
        except OSError:
            pass
        self._note(None)

    def _note(self, frame):
        with self._changed:
            if frame is None:
                self.opened = 1 << 30
            elif frame.kind == OPEN:
                self.opened += 1
            elif frame.kind == DATA:
                self.input += len(frame.payload)
            self._changed.notify_all()

    def wait_for_operation(self, number):
        """Until the client has opened so many, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self.opened >= number, 20)


def sandbox_that(speak, tmp_path):
    """A sandbox whose guest does this with each stream, and its driver."""
    driver = ScriptedDriver(speak)
    handle = Handle("scripted", "sb-scripted")
    now = time.time()
    info = Info(handle.id, "scripted", "running", {}, now, now + 3600, Spec(timeout=None), {}, ())
    return Sandbox(Record(driver, Store(str(tmp_path / "registry.db")), handle, info)), driver


def says(script, *, first=b"", then_silence=False):
    """A guest that says this and hangs up, or then says nothing more until the client does.

    What is `first` answers the first operation, and the rest waits for the second.
    """

    def speak(sock, listener):
        if first:
            sock.sendall(HELLO_FRAME + first)
            listener.wait_for_operation(2)
            sock.sendall(script.removeprefix(HELLO_FRAME))
        else:
            sock.sendall(script)
        if not then_silence:
            sock.shutdown(socket.SHUT_WR)

    return speak


def data(payload, stream=1, channel=1):
    return frames.encode(channel, DATA, payload, stream)


def event(value, channel=1):
    return frames.encode(channel, EVENT, json.dumps(value).encode())


def end(value, channel=1):
    return frames.encode(channel, END, json.dumps(value).encode())


def ok(**fields):
    return end({"ok": fields})


INFO = {"path": "/workspace/x", "name": "x", "type": "file", "size": 1, "mode": 420, "modified": 1.5, "target": None}
DIRECTORY = {**INFO, "type": "directory"}
EXIT = {"exit_code": 0, "timed_out": False, "truncated": False, "duration": 0.1}
PROCESS = {"pid": 2, "parent": 1, "command": "x", "state": "S", "memory": 1, "cpu_seconds": 0.5, "started_by_api": True}
CELL = {"count": 1, "error": None, "timed_out": False, "truncated": False, "state_lost": False, "duration": 0.1}


def _listen(text):
    assert isinstance(text, str)


def _use(process):
    try:
        process.signal(1)
        process.read(0.5)
        return process.wait(0.5)
    finally:
        process.detach()


def _look(watch):
    with watch:
        return watch.read(0.5)


# Every operation of the client, with what an honest guest might answer.
OPERATIONS = {
    "run": (lambda sb, tmp: sb.run("x"), [event({"pid": 5}), data(b"out"), data(b"err", 2), ok(**EXIT)]),
    "run with input": (lambda sb, tmp: sb.run("x", stdin=b"i" * 300_000), [event({"pid": 5}), data(b"o"), ok(**EXIT)]),
    "run with callbacks": (
        lambda sb, tmp: sb.run("x", on_stdout=_listen, on_stderr=_listen),
        [data(b"\xff\xc3"), data(b"\xa4", 2), ok(**EXIT)],
    ),
    "run with a timeout": (lambda sb, tmp: sb.run("x", timeout=0.3), [event({"pid": 5}), ok(**EXIT)]),
    "stream": (lambda sb, tmp: list(sb.stream("x")), [event({"pid": 5}), data(b"out"), data(b"err", 2), ok(**EXIT)]),
    "start": (lambda sb, tmp: _use(sb.start("x")), [event({"pid": 5}), data(b"out"), ok(**EXIT)]),
    "attach": (lambda sb, tmp: _use(sb.attach(5)), [event({"pid": 5}), data(b"out"), ok(**EXIT)]),
    "run_code": (
        lambda sb, tmp: sb.run_code("x", on_result=lambda result: result.text),
        [data(b"out"), event({"result": {"text/plain": "1"}, "main": True}), ok(**CELL)],
    ),
    "a cell that fails": (
        lambda sb, tmp: sb.run_code("x"),
        [ok(**{**CELL, "error": {"name": "E", "value": "v", "traceback": "t"}})],
    ),
    "open a session": (lambda sb, tmp: sb.session(), [ok(session="session-1", shell="bash")]),
    "a command of a session": (
        lambda sb, tmp: sb.session().run("x", timeout=0.3),
        [data(b"out", channel=2), data(b"err", 2, channel=2), end({"ok": {**CELL, "exit_code": 0}}, channel=2)],
    ),
    "stream a session": (
        lambda sb, tmp: list(sb.session().stream("x", timeout=0.3)),
        [data(b"out", channel=2), end({"ok": {**CELL, "exit_code": 3}}, channel=2)],
    ),
    "interrupt": (lambda sb, tmp: sb.interrupt(), [ok(interrupted=True)]),
    "processes": (lambda sb, tmp: sb.processes(), [ok(processes=[PROCESS])]),
    "signal": (lambda sb, tmp: sb.signal(5, 9), [ok()]),
    "read": (lambda sb, tmp: sb.files.read("x"), [data(b"content"), ok(size=7)]),
    "read_bytes": (lambda sb, tmp: sb.files.read_bytes("x", max_size=1000), [data(b"content"), ok(size=7)]),
    "write": (lambda sb, tmp: sb.files.write("x", "content"), [ok(size=7)]),
    "write much": (lambda sb, tmp: sb.files.write("x", iter([b"x" * 70_000] * 10)), [ok(size=7)]),
    "list": (lambda sb, tmp: sb.files.list(), [event({"entries": [INFO, DIRECTORY]}), ok(skipped=0)]),
    "info": (lambda sb, tmp: sb.files.info("x"), [ok(info=INFO)]),
    "exists": (lambda sb, tmp: sb.files.exists("x"), [end({"error": {"code": "file_error", "errno": 2}})]),
    "mkdir": (lambda sb, tmp: sb.files.mkdir("x"), [ok()]),
    "remove": (lambda sb, tmp: sb.files.remove("x"), [ok()]),
    "move": (lambda sb, tmp: sb.files.move("x", "y"), [ok()]),
    "copy": (lambda sb, tmp: sb.files.copy("x", "y"), [ok()]),
    "search": (
        lambda sb, tmp: sb.files.search("x"),
        [event({"matches": [{"path": "p", "line": 1, "text": "t"}]}), ok(truncated=False, skipped=0)],
    ),
    "watch": (
        lambda sb, tmp: _look(sb.files.watch()),
        [event({"ready": True}), event({"events": [{"type": "created", "path": "p"}]})],
    ),
    "upload": (lambda sb, tmp: sb.files.upload(__file__, "x"), [ok(size=7)]),
    "upload a tree": (lambda sb, tmp: sb.files.upload(tmp, "x"), [ok(entries=7)]),
    "download": (
        lambda sb, tmp: sb.files.download("x", tmp / "file"),
        [data(b"content", channel=2), end({"ok": {"size": 7}}, channel=2)],
    ),
    "download a tree": (
        lambda sb, tmp: sb.files.download("x", tmp / "tree"),
        [data(b"\0\0\0\0", channel=2), end({"ok": {"entries": 0, "skipped": 0}}, channel=2)],
    ),
}  # fmt: skip

# What goes before, for operations that begin with another one.
_SESSION = ok(session="session-1", shell="bash")
FIRST = {
    "download": ok(info=INFO),
    "download a tree": ok(info=DIRECTORY),
    "a command of a session": _SESSION,
    "stream a session": _SESSION,
}
